"""The set of plugins that a configuration can use, as a value to compare."""

from __future__ import annotations

import msgspec
import pytest

from framework.errors import PluginError
from framework.plugins.kinds import Scope
from framework.plugins.resolved import ResolvedSet, check_equal, resolve_plugins


def keys(resolved):
    return [row.key for row in resolved.rows if row.key.startswith(("thing", "extra"))]


def test_the_set_is_what_the_configuration_can_use(house, extra_code):
    """Of a kind of which one runs the chosen one, else all; of the others what is activated."""
    for name in ("a", "b"):
        house.thing(name, f"d-{name}")
        house.add(f"e-{name}", {f"extras {name}": "E"}, extra_code)
    env = {"FRAMEWORK_PLUGINS": "+extra:b"}
    assert keys(resolve_plugins(house.registry(env))) == [
        "extra:b@e-b",
        "thing:a@d-a",
        "thing:b@d-b",
    ]
    chosen = resolve_plugins(house.registry(env), {"thing": ["b"], "extra": ["a"]})
    assert keys(chosen) == ["extra:a@e-a", "extra:b@e-b", "thing:b@d-b"]
    denied = house.registry({"FRAMEWORK_PLUGINS_DENY": "d*,thing:a"})
    assert keys(resolve_plugins(denied)) == ["thing:b@d-b"]
    with pytest.raises(PluginError, match="unknown plugin 'thing:c'"):
        resolve_plugins(house.registry(), {"thing": ["c"]})


def test_it_does_not_depend_on_the_process_or_on_what_is_loaded(house):
    """Every process resolves the same set, before and after its plugins are used."""
    house.thing("a", "d", scopes=["worker"])
    everywhere = house.registry()
    front = house.registry(scopes={Scope.FRONT_END})
    first = resolve_plugins(everywhere)
    everywhere.create("thing", "a")
    assert first == resolve_plugins(everywhere) == resolve_plugins(front)
    assert first.for_scopes([Scope.WORKER]) == first
    left = first.for_scopes([Scope.ENGINE_CORE])
    assert "thing:a@d" not in [row.key for row in left.rows]
    assert left.fingerprint != first.fingerprint
    assert [row.key for row in first.for_scopes([Scope.FRONT_END]).rows].count(
        "core:framework@framework"
    ) == 1


def test_rows_that_differ_are_told_with_both_values(house, tmp_path):
    """A version, a manifest, an edited file or a missing plugin each is a difference."""
    house.thing("a", "d1", contract=">=1.0,<2")
    package = house.thing("b", "d2")
    mine = resolve_plugins(house.registry())
    (file,) = tmp_path.glob(f"*/{package}/__init__.py")
    file.write_text(file.read_text() + "# edited\n")
    house.thing("c", "d3")
    other = resolve_plugins(house.registry())
    assert [(d.key, d.field) for d in mine.compare(other)] == [
        ("thing:b@d2", "files"),
        ("thing:c@d3", "plugin"),
    ]
    changed = [msgspec.structs.replace(row, version="9") for row in mine.rows if "a@" in row.key]
    rest = [row for row in other.rows if "a@" not in row.key]
    with pytest.raises(PluginError) as caught:
        check_equal(
            mine, ResolvedSet(rows=(*changed, *rest)), names=("here", "there"), mend="do it"
        )
    text = str(caught.value)
    assert "thing:a@d1: version 1.0 in here, 9 in there" in text
    assert "thing:c@d3: only in there" in text
    assert "thing:b@d2: files " in text
    assert "core:framework" not in text
    assert mine.compare(mine) == ()
    check_equal(mine, mine, names=("here", "there"), mend="")


def test_it_is_the_same_after_any_way_to_another_process(house):
    """Packed and unpacked it has the same fingerprint."""
    house.thing("a", "d")
    mine = resolve_plugins(house.registry())
    for codec in (msgspec.msgpack, msgspec.json):
        again = codec.decode(codec.encode(mine), type=ResolvedSet)
        assert (again, again.fingerprint) == (mine, mine.fingerprint)


@pytest.mark.parametrize("edited", ["a", "b"])
def test_all_modules_of_a_distribution_count_for_all_its_plugins(house, tmp_path, edited):
    """Without a RECORD they are found by its entry points, each of which may name another."""
    package = house.add("d", "[framework.things]\na = PKG:T\nb = PKG_b:T\n")
    (site,) = (path.parent for path in tmp_path.glob(f"*/{package}"))
    files = {"a": site / package / "__init__.py", "b": site / f"{package}_b.py"}
    files["b"].write_text("")
    mine = resolve_plugins(house.registry())
    files[edited].write_text("# edited\n")
    found = mine.compare(resolve_plugins(house.registry()))
    assert [(row.key, row.field) for row in found] == [
        ("thing:a@d", "files"),
        ("thing:b@d", "files"),
    ]
