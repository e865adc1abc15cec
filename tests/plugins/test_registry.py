from __future__ import annotations

import logging
import sys

import pytest

from framework.errors import ConfigError, PluginError
from framework.plugins.records import State


def states(registry, kind):
    return {r.key.partition(":")[2]: r.state.value for r in registry.records(kind)}


def test_an_unknown_name_is_compared_with_those_of_its_kind(house, extra_code):
    """Also where several kinds are meant, and whatever its length."""
    house.thing("tiger", "d1")
    house.add("d2", {"extras tigers": "E"}, extra_code)
    (problem,) = house.registry({"FRAMEWORK_PLUGINS": "thin*:tigrr"}).problems
    assert "(did you mean 'tiger'?)" in problem.message
    assert "tigers" not in problem.message
    with pytest.raises(PluginError) as caught:
        house.registry().find("thing", "x" * 100_000)
    assert len(str(caught.value)) < 2000
    assert "framework-plugin-" not in caught.value.mend


def test_unknown_name_gives_near_matches_location_and_install_line(house):
    """A mistyped name is answered with what is installed, where, and what to install."""
    house.thing("tiger", "zoo")
    with pytest.raises(PluginError) as caught:
        house.registry().load("thing", "tigre")
    text = str(caught.value)
    assert "did you mean 'tiger'" in text
    assert "zoo-1.0.dist-info" in text
    assert "pip install" in text


def test_unknown_name_of_the_first_party_names_its_distribution(house):
    """A first-party plugin that is not installed is answered with the exact line."""
    registry = house.registry(first_party=frozenset({"framework-plugin-cuda"}))
    with pytest.raises(PluginError, match="pip install framework-plugin-cuda"):
        registry.load("platform", "cuda")


@pytest.mark.parametrize(
    ("first_party", "words"),
    [
        ({"framework", "pytest"}, "mend: +correct the name"),
        ({"framework", "framework-plugin-not-here"}, r"mend: +pip install 'framework\[default\]'"),
    ],
)
def test_where_a_kind_has_no_plugin_the_default_ones_are_named_only_if_none_is_there(
    house, first_party, words
):
    """pytest stands for a distribution of the first party that is installed."""
    registry = house.registry(first_party=frozenset(first_party))
    with pytest.raises(PluginError, match=f"there is none of this kind(.|\n)*{words}"):
        registry.load("platform", "unheard-of")


def test_two_claims_matter_only_when_the_name_is_used(house):
    """Two distributions may have a name; using it names both, and @ resolves it."""
    first, second = house.thing("a", "d1"), house.thing("a", "d2")
    house.thing("b", "d3")
    registry = house.registry()
    reasons = {r.owner: r.reason for r in registry.records("thing")}
    assert reasons == {
        "d1": "name also claimed by d2: say a@d1",
        "d2": "name also claimed by d1: say a@d2",
        "d3": "",
    }
    registry.load("thing", "b")
    with pytest.raises(PluginError, match=r"claimed by a@d1 and by a@d2") as caught:
        registry.load("thing", "a")
    assert "choose a@d1 or a@d2" in str(caught.value)
    assert not {first, second} & set(sys.modules)
    assert registry.load("thing", "a@d2").__module__ == second
    assert registry.load("thing", " a @ D1 ").__module__ == first


@pytest.mark.parametrize(
    "env",
    [
        {"FRAMEWORK_PLUGINS_DENY": "a@d1"},
        {"FRAMEWORK_PLUGINS": "a@d2"},
        {"FRAMEWORK_PLUGINS": "+a@d2"},
    ],
)
def test_two_claims_are_resolved_by_the_lists(house, env):
    """Denying one of two claims, or naming one with its distribution, settles it."""
    house.thing("a", "d1")
    second = house.thing("a", "d2")
    assert house.registry(env).load("thing", "a").__module__ == second


def test_a_denied_plugin_cannot_be_loaded(house):
    """A plugin on the deny list is not imported, and the error says why."""
    package = house.thing("a", "d")
    registry = house.registry({"FRAMEWORK_PLUGINS_DENY": "a"})
    with pytest.raises(PluginError, match="is denied: FRAMEWORK_PLUGINS_DENY has 'a'"):
        registry.load("thing", "a", named=True)
    assert package not in sys.modules
    assert states(registry, "thing") == {"a@d": "denied"}


def test_denied_until_named(house, extra_code):
    """A kind that sees requests needs the operator's word, in a list or as a choice."""
    house.add("d", {"extras e": "E"}, extra_code)
    registry = house.registry()
    assert registry.activated("extra") == []
    with pytest.raises(PluginError, match=r"FRAMEWORK_PLUGINS=\+extra:e"):
        registry.load("extra", "e")
    assert registry.load("extra", "e", named=True).__name__ == "E"
    assert [r.name for r in house.registry().activated("extra", ["e"])] == ["e"]
    assert [r.name for r in house.registry({"FRAMEWORK_PLUGINS": "e"}).activated("extra")] == ["e"]
    with pytest.raises(PluginError, match="FRAMEWORK_PLUGINS does not list it"):
        house.registry({"FRAMEWORK_PLUGINS": ""}).load("extra", "e", named=True)
    with pytest.raises(PluginError, match="--no-plugins"):
        house.registry(no_plugins=True).load("extra", "e", named=True)


def test_exact_name_that_nothing_matches_is_fatal(house):
    """A list with an unknown exact name stops the first use; listing still works."""
    house.thing("tiger", "zoo")
    registry = house.registry({"FRAMEWORK_PLUGINS": "tiger, thing:lion"})
    assert states(registry, "thing") == {"tiger@zoo": "discovered"}
    for use in (registry.check, lambda: registry.candidates("thing")):
        with pytest.raises(PluginError, match="FRAMEWORK_PLUGINS names 'thing:lion'"):
            use()


@pytest.mark.parametrize("env", [{"FRAMEWORK_PLUGINS": "x*"}, {"FRAMEWORK_PLUGINS_DENY": "x"}])
def test_glob_that_matches_nothing_is_a_warning_and_fatal_when_strict(house, env, caplog):
    """What matches nothing is never silent."""
    house.registry(env).check()
    assert "which no installed plugin matches" in caplog.text
    with pytest.raises(PluginError, match="no installed plugin matches"):
        house.registry({**env, "FRAMEWORK_PLUGINS_STRICT": "1"}).check()


def test_unknown_group_is_a_warning_and_fatal_when_strict(house, caplog):
    """A mistyped entry-point group does not make a plugin vanish silently."""
    house.add("dist", "[framework.thing]\na = x:T\n")
    house.registry().check()
    assert "did you mean 'framework.things'" in caplog.text
    with pytest.raises(PluginError, match="unknown entry-point group"):
        house.registry({"FRAMEWORK_PLUGINS_STRICT": "1"}).check()


@pytest.mark.parametrize(("env", "fatal"), [("a", True), ("+a", True), ("*", False)])
def test_incompatible_plugin_is_fatal_when_named_exactly(house, env, fatal, caplog):
    """An incompatible plugin stops the start if named, and is a warning under a glob."""
    house.thing("a", "d", contract=">=2")
    registry = house.registry({"FRAMEWORK_PLUGINS": env})
    if fatal:
        with pytest.raises(PluginError, match="thing:a@d is incompatible"):
            registry.check()
    else:
        assert registry.candidates("thing") == []
        assert "thing:a@d is incompatible" in caplog.text


def test_failure_under_a_glob_is_left_out_with_a_warning(house, extra_code, caplog):
    """Of many, one that fails is fatal when named, first-party or strict, else left out."""
    house.add("bad", {"extras bad": "E"}, "raise RuntimeError('boom')")
    house.add("good", {"extras good": "E"}, extra_code)
    made = house.registry({"FRAMEWORK_PLUGINS": "*"}).create_activated("extra")
    assert [record.name for record, _ in made] == ["good"]
    assert "extra:bad@bad is left out" in caplog.text
    for registry in (
        house.registry({"FRAMEWORK_PLUGINS": "bad,*"}),
        house.registry({"FRAMEWORK_PLUGINS": "*", "FRAMEWORK_PLUGINS_STRICT": "1"}),
        house.registry(first_party=frozenset({"bad"})),
    ):
        with pytest.raises(PluginError, match="boom"):
            registry.create_activated("extra")
    with pytest.raises(PluginError, match="boom"):
        house.registry({"FRAMEWORK_PLUGINS": "*"}).create_activated("extra", ["bad"])


def test_candidates_go_by_rank_then_name(house):
    """Higher rank first, equal ranks by name, no manifest counts as 0; nothing is imported."""
    packages = {
        house.thing("b", "d1", rank=5),
        house.thing("a", "d2", rank=5),
        house.thing("z", "d3"),
        house.thing("y", "d4", rank=-1),
    }
    assert [r.name for r in house.registry().candidates("thing")] == ["a", "b", "z", "y"]
    assert not packages & set(sys.modules)


def test_at_equal_rank_first_party_comes_before_a_name_that_sorts_earlier(house):
    """Installing `att_cpu` must not change what is chosen; a higher rank may."""
    house.thing("cpu", "ours")
    house.thing("att_cpu", "theirs")
    house.thing("zz_cpu", "others", rank=1)
    registry = house.registry(first_party=frozenset({"ours"}))
    assert [r.name for r in registry.candidates("thing")] == ["zz_cpu", "cpu", "att_cpu"]


def test_plugins_that_replace_one_another_do_not_all_go_without_a_word(house):
    """A circle leaves none; a chain leaves its end."""
    for name, other in (("a", "b"), ("b", "c"), ("c", "a")):
        house.thing(name, f"d-{name}", replaces=[other])
    circle = house.registry(env={"FRAMEWORK_PLUGINS": "a, b, c"})
    for ask in (circle.candidates, circle.activated):
        with pytest.raises(PluginError, match="in a circle: thing:a@d-a, thing:b@d-b, thing:c@d-c"):
            ask("thing")
    chain = house.registry(env={"FRAMEWORK_PLUGINS": "+a, +b"})
    assert [record.name for record in chain.candidates("thing")] == ["a"]


def test_replaces_acts_only_when_the_replacer_is_named(house):
    """Installing a replacer changes nothing; naming it hands the name over."""
    old = house.thing("old", "d1")
    new = house.thing("new", "d2", replaces=["old"])
    registry = house.registry()
    assert registry.load("thing", "old").__module__ == old
    assert [r.name for r in registry.candidates("thing")] == ["new", "old"]
    for env in ("+new", "new,*"):
        registry = house.registry({"FRAMEWORK_PLUGINS": env})
        assert registry.load("thing", "old").__module__ == new
        assert [r.name for r in registry.candidates("thing")] == ["new"]
    registry = house.registry({"FRAMEWORK_PLUGINS": "*"})
    assert registry.load("thing", "old").__module__ == old
    assert house.registry({"FRAMEWORK_PLUGINS": "+new"}).load("thing", "old@d1").__module__ == old


def test_replacing_a_plugin_of_the_same_name_settles_the_conflict(house):
    """A named replacer may carry the name that it replaces."""
    house.thing("a", "d1")
    new = house.thing("a", "d2", replaces=["a"])
    with pytest.raises(PluginError, match="claimed by"):
        house.registry().load("thing", "a")
    assert house.registry({"FRAMEWORK_PLUGINS": "+a@d2"}).load("thing", "a").__module__ == new


def test_two_named_replacers_are_an_error(house):
    """It is not guessed which of two replacers counts."""
    house.thing("old", "d0")
    house.thing("n1", "d1", replaces=["old"])
    house.thing("n2", "d2", replaces=["old"])
    with pytest.raises(PluginError, match="not clear what replaces"):
        house.registry({"FRAMEWORK_PLUGINS": "+n1,+n2"}).load("thing", "old")


def test_activated_are_ordered_by_constraints_then_rank(house, extra_code):
    """before and after hold, free choices go by rank; absent names are ignored."""
    for name, facts in {
        "low": {"rank": 1, "before": ["high"]},
        "high": {"rank": 9},
        "mid": {"rank": 5, "after": ["absent"]},
        "last": {"rank": 99, "after": ["mid", "high"]},
    }.items():
        manifest = house.manifest("extra", name, **facts)
        house.add(f"d-{name}", {f"extras {name}": "E"}, extra_code, manifest)
    registry = house.registry({"FRAMEWORK_PLUGINS": "*"})
    assert [r.name for r in registry.activated("extra")] == ["mid", "low", "high", "last"]


def test_cycle_of_constraints_names_its_members_only(house, extra_code):
    """An order that cannot be is an error naming those who form the circle."""
    for name, before in {"a": ["b"], "b": ["a"], "c": [], "d": ["a"]}.items():
        facts = {"before": before, "after": ["b"] if name == "c" else []}
        manifest = house.manifest("extra", name, **facts)
        house.add(f"d-{name}", {f"extras {name}": "E"}, extra_code, manifest)
    with pytest.raises(PluginError, match=r"form a cycle: extra:a@d-a, extra:b@d-b\n"):
        house.registry({"FRAMEWORK_PLUGINS": "*"}).activated("extra")


def test_two_claims_to_an_activated_name_are_fatal(house, extra_code):
    """Of two distributions with one name that would both run, none is preferred."""
    house.add("d1", {"extras e": "E"}, extra_code)
    house.add("d2", {"extras e": "E"}, extra_code)
    with pytest.raises(PluginError, match="claimed by e@d1 and by e@d2"):
        house.registry({"FRAMEWORK_PLUGINS": "*"}).activated("extra")
    chosen = house.registry({"FRAMEWORK_PLUGINS": "*", "FRAMEWORK_PLUGINS_DENY": "e@d1"})
    assert [r.owner for r in chosen.activated("extra")] == ["d2"]


def test_ad_hoc_plugin_is_admitted_without_packaging(house, extra_code):
    """A plugin by dotted name counts as named by the operator, even of a denied kind."""
    package = house.add("carrier", "", extra_code)
    ad_hoc = {"extra:mine": f"{package}:E"}
    registry = house.registry(ad_hoc=ad_hoc)
    assert [r.key for r in registry.activated("extra")] == ["extra:mine@ad-hoc"]
    assert registry.load("extra", "mine").__module__ == package
    denied = house.registry({"FRAMEWORK_PLUGINS_DENY": "mine"}, ad_hoc=ad_hoc)
    with pytest.raises(PluginError, match="denied"):
        denied.load("extra", "mine")
    with pytest.raises(ConfigError, match="exclude each other"):
        house.registry(no_plugins=True, ad_hoc=ad_hoc)


def test_ad_hoc_plugin_does_not_hide_an_installed_one(house):
    """An ad-hoc plugin with the name of an installed one is a second claim."""
    package = house.thing("a", "d")
    registry = house.registry(ad_hoc={"thing:a": f"{package}:T"})
    with pytest.raises(PluginError, match="claimed by a@d and by a@ad-hoc"):
        registry.load("thing", "a")
    assert registry.find("thing", "a@ad-hoc").origin == "ad hoc"


def test_warnings_are_said_once(house, caplog):
    """A registry repeats no warning."""
    registry = house.registry({"FRAMEWORK_PLUGINS": "x*"})
    with caplog.at_level(logging.WARNING):
        registry.check()
        registry.candidates("thing")
    assert caplog.text.count("no installed plugin matches") == 1


def test_records_move_only_along_their_life(house):
    """A record cannot come back from a failure."""
    house.thing("a", "d")
    (record,) = house.registry().records("thing")
    record.move(State.FAILED, "gone")
    with pytest.raises(AssertionError):
        record.move(State.LOADED)
