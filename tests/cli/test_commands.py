"""Commands of plugins: how they are found, listed and called."""

from __future__ import annotations

import io
import itertools
import subprocess
import sys

import pytest

from framework.cli import main

COUNTER = itertools.count()
CODE = """
from framework.contracts.command import Command
from framework.errors import InputError

class P(Command):
    '''Prints what it was called with.'''

    def run(self, call):
        if "--fail" in call.arguments:
            raise InputError("it fails as told")
        print(call.program.split()[-1], *call.arguments, sep="|")
        resolved = call.resolve(None, None, ["max_num_seqs=7"])
        print(resolved.config.scheduler.max_num_seqs, sorted(call.root.options))
        return 3 if "--three" in call.arguments else 0
"""
FACTS = '[plugin.facts]\nhelp = "Says what it was told."\n'


@pytest.fixture
def install(tmp_path, monkeypatch):
    """A distribution with the command `name`; returns its module."""

    def put(name="tell", facts=FACTS, code=CODE):
        package = f"site_of_commands_{next(COUNTER)}"
        site = tmp_path / package
        (site / package).mkdir(parents=True)
        (site / package / "__init__.py").write_text(code)
        lines = ["schema = 1", "[[plugin]]", 'kind = "command"', f'name = "{name}"']
        lines += ['contract = ">=1.0,<2"', facts]
        (site / package / "framework-plugin.toml").write_text("\n".join(lines))
        info = site / f"{package}-1.0.dist-info"
        info.mkdir()
        head = f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"
        (info / "METADATA").write_text(head)
        (info / "entry_points.txt").write_text(f"[framework.commands]\n{name} = {package}:P\n")
        monkeypatch.syspath_prepend(str(site))
        return package

    return put


@pytest.fixture
def run(monkeypatch, capsys):
    """Run `framework ARGUMENTS`; returns (exit code, stdout, stderr)."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["framework", *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(""))
        monkeypatch.setenv("COLUMNS", "120")
        with pytest.raises(SystemExit) as exit_:
            main()
        shown = capsys.readouterr()
        return exit_.value.code or 0, shown.out, shown.err

    return call


def test_a_command_is_listed_from_its_manifest_and_imported_when_called(install, run):
    module = install()
    code, out, _ = run("--help")
    assert code == 0
    assert "Says what it was told." in out
    assert module not in sys.modules
    assert run("tell")[0] == 0
    assert module in sys.modules


def test_arguments_reach_it_as_they_were_typed(install, run):
    install()
    words = ["-x", "a b", "--", "--help", "--three", "-x"]
    code, out, _ = run("--plugin-option", "stat_logger.log.period=5", "tell", *words)
    assert code == 3
    assert out.splitlines()[0] == "|".join(["tell", *words])
    assert out.splitlines()[1] == "7 ['stat_logger.log.period']"


def test_an_error_of_ours_is_a_message_and_status_1(install, run):
    install()
    code, out, err = run("tell", "--fail")
    assert (code, out) == (1, "")
    assert err.endswith("error: it fails as told\n")


def test_a_path_of_several_words_lies_in_groups(install, run):
    install("one", FACTS + 'path = "bench tell"')
    install("two", FACTS + 'path = "mine deep tell"')
    assert "Says what it was told." in run("bench", "--help")[1]
    assert "tell" not in run("--help")[1].split()
    assert run("bench", "tell", "a")[1].startswith("tell|a\n")
    assert run("mine", "deep", "tell", "b")[1].startswith("tell|b\n")
    assert "schedule" in run("bench", "--help")[1]


def test_a_name_with_a_slip_is_told_what_is_near(install, run):
    install()
    code, _, err = run("tel")
    assert code == 2
    assert "did you mean 'tell'" in " ".join(err.split())
    assert "did you mean 'serve'" in " ".join(run("srve")[2].split())


def test_two_claims_are_an_error_when_the_command_is_used(install, run, monkeypatch):
    names = [install(), install()]
    assert run("--help")[0] == 0
    code, out, err = run("tell")
    assert (code, out) == (1, "")
    assert all(name in err for name in names)
    monkeypatch.setenv("FRAMEWORK_PLUGINS_DENY", f"command:tell@{names[0]}")
    assert run("tell")[0] == 0


@pytest.mark.parametrize(
    ("path", "reason"),
    [("serve", "the core has it"), ("bench", "the core has it"), ("Tell!", "cannot be typed")],
)
def test_a_path_that_cannot_be_had_is_told(install, run, path, reason):
    package = install("tell", FACTS + f'path = "{path}"')
    code, _, err = run("--help")
    assert code == 0
    assert f"warning: command:tell@{package}: no command" in err
    assert reason in err


def test_a_denied_command_is_none(install, run, monkeypatch):
    install()
    monkeypatch.setenv("FRAMEWORK_PLUGINS_DENY", "command:tell")
    code, _, err = run("tell")
    assert code == 1
    assert "denied" in err


def test_a_configuration_that_cannot_be_read_hides_no_command(install, run, monkeypatch):
    """One that tells what is wrong is needed then; one that needs the configuration fails."""
    install("tell", code=CODE.replace("resolved = ", "return 0\n        resolved = "))
    install("need")
    monkeypatch.setenv("FRAMEWORK_SCHEDULER__MAX_NUM_SEQ", "3")
    code, _, err = run("tell")
    assert code == 0
    assert "warning: unknown scheduler field 'max_num_seq'" in err
    assert "Says what it was told." in run("--help")[1]
    code, _, err = run("need")
    assert code == 1
    assert "error: unknown scheduler field 'max_num_seq'" in err
    assert run("--no-plugins", "tell")[0] != 0


@pytest.mark.parametrize("settings", ["", "not to be read"])
@pytest.mark.parametrize("way", ["flag", "environment", "off"])
def test_a_frozen_start_checks_the_lock_before_it_imports_a_command(
    install, run, tmp_path, monkeypatch, way, settings
):
    """However it was frozen, and also where the configuration cannot be read."""
    module = install()
    flags = ["--lock-file", str(tmp_path / "lock.toml")]
    if way == "flag":
        flags.append("--frozen")
    else:
        monkeypatch.setenv("FRAMEWORK_PLUGINS_FROZEN", "1" if way == "environment" else "0")
    if settings:
        monkeypatch.setenv("FRAMEWORK_SCHEDULER__MAX_NUM_SEQS", settings)
    code, _, err = run(*flags, "tell")
    assert code == (0 if way == "off" else 1)
    assert way == "off" or ("max_num_seqs" if settings else "lock.toml") in err
    assert (module in sys.modules) == (way == "off")


def test_one_from_the_command_line_goes_by_its_name(install, run):
    module = install("other")
    assert run("--plugin", f"command:mine={module}:P", "mine", "a")[1].startswith("mine|a\n")


def test_the_core_s_own_commands_look_for_no_plugin(install, run, monkeypatch):
    import framework.cli.commands as commands

    monkeypatch.setattr(commands, "find_commands", lambda *_: pytest.fail("looked for plugins"))
    assert run("serve", "--help")[0] == 0
    assert run("bench", "schedule", "--help")[0] == 0


def test_help_imports_no_plugin_and_nothing_heavy():
    code = (
        "import sys; sys.argv[1:] = ['--help']\n"
        "from framework.cli import main\ntry: main()\nexcept SystemExit: pass\n"
        "print('MODULES', *{name.partition('.')[0] for name in sys.modules})"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    modules = ended.stdout.splitlines()[-1].split()[1:]
    assert not {name for name in modules if name.startswith("framework_")}
    assert not {"torch", "transformers", "fastapi", "httpx", "matplotlib"} & set(modules)
