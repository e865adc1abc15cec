from __future__ import annotations

import os
import sys

import pytest

from framework.errors import PluginError
from framework.plugins.kinds import find_kind
from framework.plugins.manifests import ManifestReader, parse

ROW = 'kind = "attention_backend"\nname = "a"\ncontract = ">=1.0,<2"\n'
HEAD = "schema = 1\n[[plugin]]\n"


def facts(text):
    return parse("FILE", text.encode()).plugins[0]


def test_all_keys_are_read():
    """Every key of the format arrives in the facts."""
    row = facts(
        HEAD + ROW + 'knows = "1.1"\nscopes = ["worker"]\nrank = 3\nreplaces = ["b"]\n'
        'before = ["c"]\nafter = ["d"]\narchitectures = ["L"]\nroute_prefix = "/x"\n'
        "[plugin.facts]\nx = {y = [1]}\n"
    )
    assert (row.kind, row.name, row.rank, row.scopes) == ("attention_backend", "a", 3, ("worker",))
    assert (row.replaces, row.before, row.after) == (("b",), ("c",), ("d",))
    assert (row.architectures, row.route_prefix, row.facts) == (("L",), "/x", {"x": {"y": [1]}})
    assert row.knows_until(find_kind("attention_backend")) == (1, 1)


def test_a_mark_of_the_encoding_at_the_beginning_is_no_part_of_it():
    """Some editors write one; lines may end as on Windows."""
    text = "\ufeff" + HEAD + ROW
    assert facts(text.replace("\n", "\r\n")).name == "a"


@pytest.mark.parametrize("schema", ["true", "1.0", "2", '"1"', "[1]"])
def test_a_schema_is_a_number(schema):
    with pytest.raises(PluginError, match="key 'schema' is wrong"):
        parse("FILE", (HEAD.replace("1", schema) + ROW).encode())


def test_defaults():
    """Scopes default to those of the kind, what it knows to the lower end of its range."""
    row = facts(HEAD + ROW)
    assert (row.scopes, row.rank, row.replaces) == (("worker",), 0, ())
    assert row.knows_until(find_kind("attention_backend")) == (1, 0)


@pytest.mark.parametrize("contract", [">=1.0,>=1.2,<2", ">=1.2,>1.0", "==1.2,>=1.0"])
def test_of_several_lower_ends_the_highest_counts(contract):
    row = facts(HEAD + ROW.replace(">=1.0,<2", contract))
    assert row.contract == contract
    assert row.knows_until(find_kind("attention_backend")) == (1, 2)


@pytest.mark.parametrize(
    ("contract", "version", "expected"),
    [
        (">=1.0,<2", "1.0", True),
        (">=1.0,<2", "1.7", True),
        (">=1.0,<2", "2.0", False),
        (">=1.1", "1.0", False),
        ("==1.*", "1.3", True),
    ],
)
def test_contract_range(contract, version, expected):
    """A range accepts the versions that it holds and no other."""
    row = facts(HEAD + ROW.replace(">=1.0,<2", contract))
    assert row.accepts(version) is expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schema = ", "not a TOML file"),
        ("schema = 2", "key 'schema'"),
        ("", "key 'schema'"),
        ("schema = 1\nplugins = []", r"unknown key 'plugins' \(did you mean 'plugin'\?\)"),
        ("schema = 1\nplugin = 3", "key 'plugin'"),
        ("schema = 1\nplugin = [3]", r"plugin\[0\] is not a table"),
        (HEAD + ROW + "rnk = 3", r"unknown key plugin\[0\].'rnk' \(did you mean 'rank'\?\)"),
        (HEAD + ROW + 'rank = "high"', r"plugin\[0\]: Expected `int`.*rank"),
        (HEAD + ROW + 'replaces = "b"', r"plugin\[0\]: Expected `array`.*replaces"),
        (HEAD + 'kind = "model"\nname = "a"', "lacks the key 'contract'"),
        (HEAD + ROW.replace("attention", "atention"), "did you mean 'attention_backend'"),
        (HEAD + ROW.replace(">=1.0,<2", "one"), r"plugin\[0\].contract is no range"),
        (HEAD + ROW.replace(">=1.0,<2", "<2"), "no lower end"),
        (HEAD + ROW + 'knows = "new"', r"plugin\[0\].knows is no version"),
        (HEAD + ROW + 'scopes = ["wrker"]', "has no scope 'wrker'.*did you mean 'worker'"),
        (HEAD + ROW + "[[plugin]]\n" + ROW, r"plugin\[1\]: attention_backend:a is there twice"),
        ("x = " + "[" * 5000, "not a TOML file"),
    ],
)
def test_wrong_file_is_one_clear_error(text, message):
    """A wrong manifest is a PluginError that names the file, the key and near matches."""
    with pytest.raises(PluginError, match="(?s)FILE.*" + message):
        parse("FILE", text.encode())


def test_bytes_that_are_no_text():
    """A binary file is an error that names the file."""
    with pytest.raises(PluginError, match="FILE: not a TOML file in UTF-8"):
        parse("FILE", b"\xff\xfe\x00")


def test_reading_imports_nothing(house):
    """The manifest of a package that cannot be imported is read all the same."""
    package = house.add("d", {"things t": "T"}, "raise RuntimeError", house.manifest("thing", "t"))
    row = ManifestReader(house.kinds).facts("thing", "t", f"{package}.deep.module:T")
    assert row is not None
    assert row.contract == ">=1.0,<2"
    assert package not in sys.modules


@pytest.mark.parametrize("what", ["pipe", "folder", "link"])
def test_one_that_is_no_file_is_an_error(house, what):
    """Nobody waits for a pipe."""
    package = house.add("d", {"things t": "T"}, "", house.manifest("thing", "t"))
    (path,) = house.root.glob(f"**/{package}/framework-plugin.toml")
    path.unlink()
    {"pipe": os.mkfifo, "folder": os.mkdir, "link": lambda p: os.symlink(p, p)}[what](path)
    with pytest.raises(PluginError, match=r"framework-plugin\.toml: cannot be read"):
        ManifestReader(house.kinds).facts("thing", "t", f"{package}:T")


@pytest.mark.parametrize("value", ["no_such_package_here:T", "json.decoder:T", "this:T"])
def test_without_a_manifest_the_facts_are_unknown(value):
    """A package without the file, a module and a missing package have no facts."""
    assert ManifestReader().facts("model", "t", value) is None


def test_missing_row_is_an_error_with_near_matches(house):
    """An entry point that the manifest does not know is answered with the row it has."""
    package = house.add("d", {"things t": "T"}, "", house.manifest("thing", "tiger"))
    with pytest.raises(PluginError, match=r"'thing:tigre'.*did you mean 'thing:tiger'"):
        ManifestReader(house.kinds).facts("thing", "tigre", f"{package}:T")
