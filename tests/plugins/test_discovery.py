from __future__ import annotations

import sys

import pytest

from framework.errors import ConfigError, PluginError
from framework.plugins.discovery import ad_hoc_records, core_first_party, discover
from framework.plugins.records import State


def names(house, **more):
    return [
        (r.kind, r.name, r.distribution, r.version)
        for r in discover(house.kinds, path=house.paths, **more).records
    ]


def test_entry_points_become_records_without_an_import(house):
    """All groups of the table are listed, and the packages stay unimported."""
    package = house.add("My.Dist", {"things b": "T", "models m": "M"}, "raise SystemExit")
    assert names(house) == [
        ("model", "m", "My.Dist", "1.0"),
        ("thing", "b", "My.Dist", "1.0"),
    ]
    assert package not in sys.modules


@pytest.mark.parametrize("name", ["x" * 201, "two words", "caf\u00e9", "-x", "x.", "a\x1bb"])
def test_a_distribution_whose_name_none_can_have_is_left_out(house, name):
    """Its name would stand in every message about its plugins."""
    house.add(name, {"things a": "T"}, folder="odd")
    found = discover(house.kinds, path=house.paths)
    assert found.records == ()
    (problem,) = found.problems
    assert "a name that none can have" in problem.message


def test_a_version_is_shown_in_a_line(house):
    house.add("dist", {"things a": "T"}, version="1\x1b" + "0" * 90, folder="odd")
    ((*_, version),) = names(house)
    assert version == r"1\x1b" + "0" * 58 + "..."


def test_first_party_by_normalized_name(house):
    """A distribution counts as first-party however its name is spelled."""
    house.add("My.Dist", {"things b": "T"})
    house.add("other", {"things c": "T"})
    found = discover(house.kinds, path=house.paths, trusted=frozenset({"my-dist"}))
    assert {r.name: r.first_party for r in found.records} == {"b": True, "c": False}


def test_distribution_found_twice_counts_once(house):
    """Of two versions on the path the first counts, as it does for an import."""
    house.add("dist", {"things a": "T"}, version="2.0")
    house.add("dist", {"things a": "T", "things b": "T"}, version="1.0")
    assert names(house) == [("thing", "a", "dist", "2.0")]


def test_installed_distribution_wins_over_build_leftovers(house):
    """An egg-info folder beside the sources does not hide what was installed."""
    leftovers = house.root / "src" / "dist.egg-info"
    leftovers.mkdir(parents=True)
    (leftovers / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: dist\nVersion: 0.1\n")
    (leftovers / "entry_points.txt").write_text("[framework.things]\nold = x:T\n")
    house.paths.append(str(leftovers.parent))
    house.add("dist", {"things new": "T"}, version="0.2")
    assert names(house) == [("thing", "new", "dist", "0.2")]


def test_shadowing_distribution_without_plugins_hides_the_other(house):
    """If the distribution that Python uses has no plugins, the hidden one's are not listed."""
    house.add("dist", "[console_scripts]\nx = y:z\n", version="2.0")
    house.add("dist", {"things a": "T"}, version="1.0")
    assert names(house) == []


def test_unknown_group_is_a_problem_with_near_matches(house):
    """A mistyped group is reported with its distribution and the right name."""
    house.add("dist", "[framework.thing]\na = x:T\n")
    found = discover(house.kinds, path=house.paths)
    assert found.records == ()
    (problem,) = found.problems
    assert problem.distribution == "dist"
    assert "did you mean 'framework.things'" in problem.message


def test_broken_lines_hide_no_neighbour(house):
    """A line that is no entry point and a repeated name are reported; the rest is listed."""
    house.add(
        "dist", "[framework.things]\n# hm\nnonsense\na = PKG:A\na = PKG:B\nb = PKG\nc=PKG:C [x]\n"
    )
    found = discover(house.kinds, path=house.paths)
    assert {r.name: r.state for r in found.records} == {
        "a": State.DISCOVERED,
        "b": State.FAILED,
        "c": State.DISCOVERED,
    }
    assert found.records[0].value.endswith(":A")
    assert [("line 3" in p.message, "twice" in p.message) for p in found.problems] == [
        (True, False),
        (False, True),
    ]


ODD = ["a b", "a:b", "a@b", "a,b", "*", "a?", "a[b]", "\x1b[31mred", "a\u202eb"]


@pytest.mark.parametrize("name", ODD)
def test_a_name_that_no_list_can_name_is_told_and_makes_no_plugin(house, name):
    house.add("dist", f"[framework.things]\n{name} = PKG:A\ngröße-1.x_y/z = PKG:A\n")
    found = discover(house.kinds, path=house.paths)
    assert [r.name for r in found.records] == ["größe-1.x_y/z"]
    (problem,) = found.problems
    assert f"{name!r}, which no list or option can name" in problem.message
    with pytest.raises(ConfigError, match="ad-hoc plugin"):
        ad_hoc_records({f"thing:{name}": "m:C"}, house.kinds)


def test_distribution_without_readable_metadata_hides_no_neighbour(house):
    """A half-removed, binary or unreadable one does not disturb the others, and is told."""
    house.add("good", {"things a": "T"}, folder="site")
    for name, data in (("half", b"[framework.things]\nx = y:Z"), ("binary", b"framework.\xff\xfe")):
        info = house.root / "site" / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "entry_points.txt").write_bytes(data)
    folder = house.root / "site" / "folder-1.0.dist-info"
    (folder / "entry_points.txt").mkdir(parents=True)
    found = discover(house.kinds, path=house.paths)
    assert [record.key for record in found.records] == ["thing:a@good"]
    told = {problem.distribution: problem.message for problem in found.problems}
    assert "does not say its name" in told.pop("half")
    assert set(told) == {"binary", "folder"}
    assert "entry_points.txt is not UTF-8" in told["binary"]
    assert "entry_points.txt cannot be read" in told["folder"]


def test_what_can_be_read_of_unreadable_entry_points_is_a_record(house):
    """Its plugins have a name that says why they cannot be used, and no neighbour is lost."""
    house.add("good", {"things a": "T"})
    house.add("d", {"things b": "T"})
    (entries,) = house.root.glob("**/d-*.dist-info/entry_points.txt")
    entries.write_bytes("# größe\n[framework.things]\nb = m:T\nö = m:T\n".encode("latin-1"))
    found = discover(house.kinds, path=house.paths)
    assert [(r.key, r.state) for r in found.records] == [
        ("thing:a@good", State.DISCOVERED),
        ("thing:b@d", State.FAILED),
    ]
    reason = "entry_points.txt is not UTF-8, so that nobody can use its plugins"
    assert found.records[1].reason == reason
    (problem,) = found.problems
    assert reason in problem.message


def test_an_author_whose_name_is_no_utf8_takes_no_plugin_away(house):
    house.add("d", {"things a": "T"})
    (metadata,) = house.root.glob("**/METADATA")
    metadata.write_bytes(metadata.read_bytes().rstrip() + b"\nAuthor: J\xf6rg\n")
    assert ("thing", "a", "d", "1.0") in names(house)
    assert discover(house.kinds, path=house.paths).problems == ()


def test_a_line_of_no_group_is_told(house):
    """A bracket was forgotten; the groups behind it count."""
    text = "framework.things]\n[framework.things]\na = m:C\n[framework.things\ny = m:C\n"
    house.add("d", text)
    found = discover(house.kinds, path=house.paths)
    assert [record.name for record in found.records] == ["a"]
    told = [problem.message.partition("): ")[2] for problem in found.problems]
    wrong = "of entry_points.txt is neither [group] nor in one"
    assert told == [
        f"line 1 {wrong}: 'framework.things]'",
        f"line 4 {wrong}: '[framework.things'",
        f"line 5 {wrong}: 'y = m:C'",
    ]


def test_ad_hoc_plugins_are_records(house):
    """{"kind:name": "module:attr"} makes a record without a distribution."""
    (record,) = ad_hoc_records({" thing : x ": " mod.sub:Cls "}, house.kinds)
    assert (record.kind, record.name, record.value) == ("thing", "x", "mod.sub:Cls")
    assert (record.distribution, record.key) == (None, "thing:x@ad-hoc")


@pytest.mark.parametrize(
    ("key", "value"), [("x", "m:C"), ("thing:", "m:C"), ("thing:x", "m"), ("thing:x", 3)]
)
def test_ad_hoc_plugin_in_another_form_is_an_error(house, key, value):
    """What is not kind:name = module:attr is refused with the form that is expected."""
    with pytest.raises(ConfigError, match="ad-hoc plugin"):
        ad_hoc_records({key: value}, house.kinds)


def test_ad_hoc_plugin_of_an_unknown_kind(house):
    """The kind of an ad-hoc plugin must exist."""
    with pytest.raises(PluginError, match="did you mean 'thing'"):
        ad_hoc_records({"thin:x": "m:C"}, house.kinds)


def test_the_installed_core_names_the_first_party():
    """The core's own metadata lists the plugins of this repository."""
    trusted, problems = core_first_party()
    assert {"framework-plugin-torch", "framework-plugin-cpu"} <= trusted
    assert problems == ()
