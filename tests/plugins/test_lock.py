"""A lock file holds what a configuration can use, and `frozen` holds a start to it."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

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

ROW = (
    '{"kind": "thing", "name": "a", "distribution": "d", "version": null, "entry_point": "a:A",'
    ' "contract": null, "scopes": [], "files": null}'
)
ROWS = '{"schema": 2, "plugins": [%s, %s]}'


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
        "kind", "name", "distribution", "version", "entry_point", "contract", "scopes", "files"
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
        ('{"schema": 2}', "plugins"),
        ('{"schema": 2, "plugins": [{}]}', "kind"),
        ('{"schema": 2, "plugins": [], "more": 1}', "more"),
        ('{"schema": 1, "plugins": []}', "another schema"),
        ('{"schema": 3, "plugins": {}, "more": 1}', "another schema"),
        (ROWS % (ROW, ROW), "has thing:a@d twice"),
        (ROWS % (ROW, ROW.replace('"files"', '"filse": "x", "files"')), "filse"),
        ('{"schema": 2, "plugins": [', "cannot be read"),
        ('\ufeff{"schema": 2, "plugins": []}', "cannot be read"),
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


@pytest.mark.parametrize("way", ["folder", "pipe", "loop", "null device", "huge", "no name"])
def test_what_no_lock_can_be_is_told_at_once(tmp_path, way, monkeypatch):
    """Nothing is waited for, and nothing is read that has no end."""
    file = tmp_path / "x.lock"
    match way:
        case "folder":
            file.mkdir()
        case "pipe":
            os.mkfifo(file)
        case "loop":
            file.symlink_to(file)
        case "null device":
            file.symlink_to("/dev/zero")
        case "huge":
            monkeypatch.setattr("framework.plugins.lock.LARGEST", 99)
            file.write_text(" " * 100)
        case "no name":
            file = tmp_path / "x\0lock"
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        read_lock(file)
    assert "framework plugins lock" in str(caught.value)


def test_a_lock_is_replaced_as_a_whole(house, tmp_path, monkeypatch):
    """A write that fails leaves the old one and nothing else; a link leads to the file, whose
    mode stays."""
    house.thing("a", "d1")
    resolved = resolve_plugins(house.registry())
    (tmp_path / "kept").mkdir()
    file, link = tmp_path / "kept" / "x.lock", tmp_path / "link.lock"
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to(file)
    with monkeypatch.context() as full:
        full.setattr(Path, "replace", no_room)
        with pytest.raises(ConfigError, match="No space left"):
            write_lock(resolved, link)
    assert (file.read_text(), os.listdir(file.parent)) == ("old", ["x.lock"])
    write_lock(resolved, link)
    assert link.is_symlink()
    assert read_lock(file) == resolved
    assert (file.stat().st_mode & 0o777, os.listdir(file.parent)) == (0o640, ["x.lock"])


def no_room(*arguments):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_plugin_that_is_another_class_of_the_same_files_differs(house):
    """What an entry point names is no part of the files; it is what runs."""
    mine, others = (
        resolve_plugins(house.registry(ad_hoc={"thing:a": f"thing_contract:{name}"}))
        for name in ("Thing", "Extra")
    )
    assert [(d.key, d.field) for d in mine.compare(others)] == [("thing:a@ad-hoc", "entry_point")]


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
