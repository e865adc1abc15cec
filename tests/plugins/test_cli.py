from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys

import pytest

EVIL = "raise SystemExit('imported')"
SOURCE = """
from framework.contracts.scheduling_policy import SchedulingPolicy
class P(SchedulingPolicy):
    def keys(self, requests):
        return requests.arrival.astype(float)
"""


@pytest.fixture
def run(house):
    """Run `framework` in a process of its own that sees the house."""

    def call(*arguments, **env):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("FRAMEWORK_")}
        environment |= {"PYTHONPATH": os.pathsep.join(house.paths), **env}
        command = [sys.executable, "-c", "from framework.cli import main; main()", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    return call


@dataclasses.dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


@pytest.fixture
def run_here(house, monkeypatch, capfd):
    """Run `framework` in this process, which a start costs nothing."""
    from framework.cli import main

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["framework", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        return Ended(caught.value.code, *capfd.readouterr())

    return call


def test_list_shows_every_plugin_and_imports_none(house, run):
    """The list has a line per plugin, with state and reason, also as JSON."""
    house.add("dist-x", {"scheduling_policies x": "P", "hooks h": "H"}, EVIL, version="3.2")
    house.add("dist-y", "[framework.platfroms]\na = x:T\n")
    ended = run("plugins", "list")
    assert ended.returncode == 0
    lines = [line.split() for line in ended.stdout.splitlines()]
    assert ["scheduling_policy", "x", "dist-x", "3.2", "discovered", "facts", "unknown"] in lines
    (hook,) = [line for line in lines if line[:2] == ["hooks", "h"]]
    assert hook[4] == "denied"
    assert "FRAMEWORK_PLUGINS=+hooks:h" in hook
    assert "did you mean 'framework.platforms'" in ended.stderr
    rows = json.loads(run("plugins", "list", "--json", FRAMEWORK_PLUGINS="h").stdout)
    states = {row["name"]: row["state"] for row in rows if row["distribution"] == "dist-x"}
    assert states == {"x": "denied", "h": "discovered"}


def test_root_options(house, run):
    """--no-plugins keeps third parties out, --plugin adds one by dotted name."""
    package = house.add("dist", {"scheduling_policies x": "P"}, SOURCE)
    rows = json.loads(run("--no-plugins", "plugins", "list", "--json").stdout)
    assert [row["reason"] for row in rows if row["name"] == "x"] == [
        "--no-plugins admits the first party only"
    ]
    option = f"scheduling_policy:mine={package}:P"
    rows = json.loads(run("--plugin", option, "plugins", "list", "--json").stdout)
    assert [row["origin"] for row in rows if row["name"] == "mine"] == ["ad hoc"]


def test_show_and_explain(house, run):
    """Both print what is known, and explain marks a choice."""
    manifest = house.manifest("scheduling_policy", "x", rank=4)
    house.add("dist", {"scheduling_policies x": "P"}, EVIL, manifest)
    shown = run("plugins", "show", "scheduling_policy:x").stdout
    assert ">=1.0,<2" in shown
    assert run("plugins", "show", "x").stdout == shown
    assert "did you mean 'x'" in run("plugins", "show", "xy").stderr
    explained = run("explain", "scheduling_policy", "--json", "--choice", "x").stdout
    (question,) = json.loads(explained)["questions"]
    (row,) = [row for row in question["candidates"] if row["name"] == "x"]
    assert (row["rank"], row["verdict"]) == (4, "chosen")
    assert " x " in run("plugins", "explain", "scheduling_policy").stdout


@pytest.mark.parametrize(
    ("arguments", "env", "message"),
    [
        (["explain", "platfrom"], {}, "did you mean 'platform'"),
        (["plugins", "show", "platform:nope"], {}, "unknown plugin 'platform:nope'"),
        (["plugins", "show", "nope"], {}, "unknown plugin 'nope'"),
        (["--plugin", "a:b", "plugins", "list"], {}, "--plugin 'a:b'"),
        (["plugins", "list"], {"FRAMEWORK_PLUGINS": "modl:x"}, "did you mean 'model'"),
        (["explain", "platform"], {"FRAMEWORK_PLUGINS": "nope"}, "names 'nope'"),
        (["explain", "platform", "--choice", "nope"], {}, "unknown plugin 'platform:nope'"),
    ],
)
def test_errors_are_one_message_without_a_trace(run, arguments, env, message):
    """A mistake ends with status 1 and a message, never with a traceback."""
    ended = run(*arguments, **env)
    assert ended.returncode == 1
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plugins", "show", "nope"], "unknown plugin 'nope'"),
        (["plugins", "show", "--json", "plattform:cpu"], "did you mean 'platform'"),
        (["plugins", "explain", "nope"], "unknown kind"),
        (["plugins", "new", "hooks", "9"], "no name for a plugin"),
        (["plugins", "lock", "-o", "/gone/x"], "cannot be written"),
        (["plugins", "lock", "--check", "-o", "/gone/x"], "there is no lock file"),
        (["plugins", "doctor", "--set", "nofield=1"], "unknown flag 'nofield'"),
        (["plugins", "conform", "nope", "--json", "-"], "unknown plugin 'nope'"),
        (["--plugin", "x", "plugins", "list"], "--plugin 'x' is not understood"),
        (["config", "--config", "/gone"], "cannot be read"),
    ],
)
def test_what_fails_is_json_too(run_here, arguments, said):
    """One document on stdout of the same shape whatever fails; people read it on stderr."""
    ended = run_here(*arguments, *(["--json"] if "--json" not in arguments else []))
    (key,) = found = json.loads(ended.out)
    assert (ended.code, key) == (1, "error")
    assert set(found["error"]) == {
        "type", "message", "expected", "found", "mend", "plugin", "distribution", "parameter"
    }  # fmt: skip
    told = f"{found['error']['message']} {found['error']['mend']}"
    assert said in told
    assert said in ended.err


def test_a_name_of_a_file_is_not_a_wish_for_json_on_stdout(run_here, tmp_path):
    ended = run_here("plugins", "conform", "nope", "--json", str(tmp_path / "report.json"))
    assert (ended.code, ended.out) == (1, "")


def test_what_a_plugin_prints_when_it_is_loaded_is_no_part_of_json(house, run):
    """Also what is written past Python's streams."""
    noisy = "import os\nprint('hello')\nos.write(1, b'more')\n" + SOURCE
    house.add("d", {"scheduling_policies noisy": "P"}, noisy)
    ended = run("--plugin-option", "scheduling_policy.noisy.x=1", "config", "--json")
    (error,) = json.loads(ended.stdout)["errors"]
    assert "takes no options" in error["message"]
    assert (error["plugin"], error["distribution"]) == ("scheduling_policy:noisy@d", "d")
    assert "hello" in ended.stderr
    assert "more" in ended.stderr


ORDERS = "\x1b[31mred\x07"


def test_no_plugin_gives_orders_to_a_terminal(house, run_here):
    """Whatever part of it they stand in: names, versions, manifests, errors, help."""
    toml = json.dumps(ORDERS)  # as TOML writes it
    good = house.manifest("command", "good") + f"[plugin.facts]\nhelp = {toml}\nnumber = nan\n"
    house.add("d1", {"commands good": "C"}, "", good)
    house.add("d2", {"commands key": "C"}, "", house.manifest("command", "key") + f"{toml} = 1\n")
    house.add(
        "d3",
        {"scheduling_policies text": "P"},
        f"P = type('P', (), {{'__repr__': lambda s: {ORDERS!r}}})()",
    )
    house.add("d4", {"commands v": "C"}, "", version=f"1{ORDERS}")
    house.add(f"d5{ORDERS}", {"commands n": "C"}, folder="d5")
    house.add(
        "d6", f"[framework.commands]\n{ORDERS} = a:b\nx = a:b{ORDERS}\n[framework.{ORDERS}]\n"
    )
    for arguments in (
        ["plugins", "list"],
        ["plugins", "show", "good"],
        ["plugins", "show", "v"],
        ["plugins", "doctor", "--no-import"],
        ["explain", "command"],
        ["--help"],
        ["plugins", "conform", "text", "--clause", "ALL-020"],
        ["--plugin-option", "scheduling_policy.text.x=1", "config"],
    ):
        ended = run_here(*arguments)
        assert not {"\x1b", "\x07"} & {*ended.out, *ended.err}, arguments
    for name in ("good", "v"):
        (row,) = json.loads(
            run_here("plugins", "show", name, "--json").out, parse_constant=pytest.fail
        )
        assert row["name"] == name


def test_explain_asks_the_default_query(house, monkeypatch):
    """For a kind with a query the table shows all answers; a choice that fails is status 1."""
    from typer.testing import CliRunner

    from framework.cli.app import build_app

    house.thing("small", "d1", limit=1, rank=9)
    house.thing("large", "d2", limit=100)
    monkeypatch.setattr("framework.config.choices.open_registry", lambda _: house.registry())
    ended = CliRunner().invoke(build_app(), ["explain", "thing", "--json"])
    (table,) = json.loads(ended.stdout)["questions"]
    assert [(row["name"], row["verdict"]) for row in table["candidates"]] == [
        ("small", "rejected"),
        ("large", "chosen"),
    ]
    assert table["candidates"][0]["rejections"][0]["code"] == "size"
    ended = CliRunner().invoke(build_app(), ["explain", "thing", "--choice", "small"])
    assert ended.exit_code == 1
    assert "chosen thing 'small' cannot serve: size=5, needs at most 1" in ended.output


def unreadable(house):
    """A distribution of which no program can read the entry points, and the file."""
    house.add("d", {"scheduling_policies p": "P"}, EVIL)
    (entries,) = house.root.glob("**/d-*.dist-info/entry_points.txt")
    entries.write_bytes(b"[framework.scheduling_policies]\np = a:B\n\xff = a:B\n")
    return entries


def test_metadata_that_no_program_can_read_stop_no_command(house, run):
    """pydantic and torch look through all entry points, and would end every command."""
    entries = unreadable(house)
    ended = run("plugins", "list", "--json")
    assert ended.returncode == 0, ended.stderr
    records = {row["name"]: row for row in json.loads(ended.stdout) if row["distribution"] == "d"}
    assert {
        name: (row["state"], row["reason"].partition(",")[0]) for name, row in records.items()
    } == {"p": ("failed", "entry_points.txt is not UTF-8")}
    assert f"entry_points.txt is not UTF-8 in {entries.parent}; other" in ended.stderr
    assert "reinstall it, or remove the folder" in ended.stderr
    ended = run("plugins", "doctor", "--no-import")
    assert "entry_points.txt is not UTF-8" in ended.stdout
    assert "Traceback" not in ended.stderr
    entries.unlink()
    entries.symlink_to(entries.name)
    ended = run("plugins", "list")
    assert ended.returncode == 0, ended.stderr
    assert f"entry_points.txt cannot be read in {entries.parent}" in ended.stderr


def test_metadata_that_no_program_can_read_are_fatal_to_the_strict(house, run):
    unreadable(house)
    ended = run("explain", "scheduling_policy", FRAMEWORK_PLUGINS_STRICT="1")
    assert ended.returncode == 1
    assert "error: d (" in ended.stderr
    assert "entry_points.txt is not UTF-8" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_metadata_that_no_program_can_read_stop_no_engine(house):
    """What `LLM` makes first is its configuration, of pydantic's models; torch comes later, and is
    told in time, here and in children."""
    unreadable(house)
    program = """
import os
from framework.engine.llm_options import resolve_options
print(resolve_options("demo", {}).config.model.model)
print(os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"], os.environ["PYDANTIC_DISABLE_PLUGINS"])
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(house.paths)},
        capture_output=True,
        text=True,
    )
    assert ended.stdout.split() == ["demo", "0", "1"], ended.stderr
