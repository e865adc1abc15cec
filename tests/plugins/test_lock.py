"""A lock file holds what a configuration can use, and `frozen` holds a start to it."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from framework import LLM
from framework.cli.app import build_app
from framework.errors import ConfigError, PluginError
from framework.plugins.lock import check_lock, lock_text, read_lock, write_lock
from framework.plugins.resolved import resolve_plugins
from framework.testing.fake_model import MODEL, fake_plugins

POLICY = """
from framework.contracts.scheduling_policy import SchedulingPolicy
class P(SchedulingPolicy):
    def keys(self, requests):
        return requests.arrival.astype(float)
"""


@pytest.fixture
def installed(house, monkeypatch):
    """A third-party scheduling policy "mine" and its source file."""
    package = house.add("dist", {"scheduling_policies mine": "P"}, POLICY, folder="site")
    return house.root / "site" / package / "__init__.py"


def test_a_lock_is_sorted_stable_and_readable(house, tmp_path):
    """The same plugins make the same text, whatever their order on the path."""
    house.thing("b", "d2", rank=3)
    house.thing("a", "d1")
    texts = set()
    for _ in range(2):
        resolved = resolve_plugins(house.registry())
        texts.add(lock_text(resolved))
        house.paths.reverse()
    (text,) = texts
    rows = json.loads(text)["plugins"]
    assert [row["name"] for row in rows if row["kind"] == "thing"] == ["a", "b"]
    assert set(rows[0]) == {
        "kind", "name", "distribution", "version", "contract", "scopes", "files"
    }  # fmt: skip
    write_lock(resolved, tmp_path / "x.lock")
    assert read_lock(tmp_path / "x.lock") == resolved
    check_lock(resolved, tmp_path / "x.lock")


def test_what_differs_from_the_lock_is_told_with_the_mend(house, tmp_path):
    """The error names each row and field, and the command that accepts the change."""
    house.thing("a", "d1")
    file = tmp_path / "x.lock"
    write_lock(resolve_plugins(house.registry()), file)
    house.thing("b", "d2")
    with pytest.raises(PluginError) as caught:
        check_lock(resolve_plugins(house.registry()), file)
    assert "thing:b@d2: only in this start" in str(caught.value)
    assert f"`framework plugins lock --output {file}`" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "there is no lock file"),
        ("", "cannot be read"),
        ("[" * 9999, "cannot be read"),
        ('{"schema": 1}', "plugins"),
        ('{"schema": 1, "plugins": [{}]}', "kind"),
        ('{"schema": 1, "plugins": [], "more": 1}', "more"),
        ('{"schema": 2, "plugins": []}', "another schema"),
    ],
)
def test_a_file_that_is_no_lock_says_how_to_make_one(tmp_path, content, words):
    """A missing, broken or foreign file is one clear error."""
    file = tmp_path / "x.lock"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigError, match=words) as caught:
        read_lock(file)
    assert "framework plugins lock" in str(caught.value)


def test_a_lock_that_cannot_be_written_says_what_to_do(house, tmp_path):
    house.thing("a", "d1")
    with pytest.raises(ConfigError, match="No such file or directory") as caught:
        write_lock(resolve_plugins(house.registry()), tmp_path / "missing" / "x.lock")
    assert f"make the folder {tmp_path / 'missing'}" in str(caught.value)


def frozen(file, **options):
    given = {"plugins": fake_plugins(), "executor": "echo", "lock_file": str(file), **options}
    with LLM(MODEL, **given) as llm:
        return llm.generate("hi")[0].outputs[0].text


def run(*arguments):
    flags = [f"--plugin={key}={value}" for key, value in fake_plugins().items()]
    return CliRunner().invoke(build_app(), [*flags, *arguments])


def test_a_frozen_engine_starts_with_its_lock_and_with_nothing_else(
    installed, tmp_path, monkeypatch
):
    """`plugins lock`, then a start; an edited file and another choice are refused by name."""
    file = tmp_path / "engine.lock"
    with pytest.raises(ConfigError, match="there is no lock file"):
        frozen(file, frozen=True)
    settings = ["--set", "executor=echo", "--set", "scheduling_policy=mine"]
    made = run("plugins", "lock", "--output", str(file), *settings)
    assert made.exit_code == 0, made.output
    assert frozen(file, frozen=True, scheduling_policy="mine") == "hi"
    monkeypatch.setenv("FRAMEWORK_PLUGINS_FROZEN", "1")
    assert frozen(file, scheduling_policy="mine") == "hi"
    with pytest.raises(PluginError, match="scheduling_policy:fcfs@framework: only in this start"):
        frozen(file)
    installed.write_text(POLICY + "# edited\n")
    with pytest.raises(PluginError, match="scheduling_policy:mine@dist: files "):
        frozen(file, scheduling_policy="mine")
    monkeypatch.setenv("FRAMEWORK_PLUGINS_FROZEN", "0")
    assert frozen(file, scheduling_policy="mine") == "hi"


def test_the_command_compares_without_writing(installed, tmp_path):
    """--check is an error with the rows that differ, --json tells them to programs."""
    file = tmp_path / "x.lock"
    command = ("plugins", "lock", "-o", str(file), "--set", "scheduling_policy=mine")
    run(*command)
    before = file.read_bytes()
    agreed = run(*command, "--check")
    assert (agreed.exit_code, "agrees" in agreed.output) == (0, True)
    installed.write_text(POLICY + "# edited\n")
    told = run(*command, "--check", "--json")
    (difference,) = json.loads(told.stdout)["differences"]
    assert (told.exit_code, difference["key"]) == (1, "scheduling_policy:mine@dist")
    with pytest.raises(PluginError, match="mine@dist: files"):
        raise run(*command, "--check").exception
    assert file.read_bytes() == before
