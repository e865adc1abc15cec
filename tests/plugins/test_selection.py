from __future__ import annotations

import sys

import pytest

from framework.errors import PluginError, SelectionError
from framework.plugins.selection import explain_table, select


@pytest.fixture
def query(house):
    from thing_contract import ThingQuery

    return ThingQuery


def verdicts(selection):
    return {row.record.name: row.verdict for row in selection.table}


def test_rank_then_name_decides_without_a_choice(house, query):
    """The best rank that can serve wins, and the table shows every answer."""
    house.thing("a", "d1", limit=10, rank=1)
    house.thing("b", "d2", limit=100, rank=1)
    house.thing("big", "d3", limit=1, rank=9)
    registry = house.registry()
    chosen = select(registry, "thing", query(size=5))
    assert (chosen.record.name, chosen.answer.note) == ("a", "fits")
    assert type(chosen.instance) is registry.load("thing", "a")
    assert verdicts(chosen) == {"big": "rejected", "a": "chosen", "b": "supported"}
    assert select(registry, "thing", query(size=50)).record.name == "b"


def test_platform_ranking_comes_before_rank(house, query):
    """Names of the ranking come first, in its order; unknown ones are ignored."""
    for name, rank in (("a", 9), ("b", 1), ("c", 0)):
        house.thing(name, f"d-{name}", rank=rank)
    registry = house.registry()
    assert select(registry, "thing", query(size=1), ranking=["x", "c", "b"]).record.name == "c"
    assert select(registry, "thing", query(size=1)).record.name == "a"


def test_stopping_at_the_first_chooses_the_same_and_imports_no_more(house, query):
    """With stop_at_first the choice is the same and later candidates are not imported."""
    house.thing("big", "d0", limit=1, rank=9)
    house.thing("a", "d1", limit=10, rank=5)
    late = house.thing("b", "d2", limit=100, rank=1)
    registry = house.registry()
    chosen = select(registry, "thing", query(size=5), stop_at_first=True)
    assert verdicts(chosen) == {"big": "rejected", "a": "chosen", "b": "not asked"}
    assert late not in sys.modules
    assert select(registry, "thing", query(size=50), stop_at_first=True).record.name == "b"


def test_a_final_rejection_ends_the_selection_with_its_reasons(house, query):
    """Who knows that the query is wrong keeps others from making do with it."""
    house.thing("low", "d0", limit=100, rank=1)
    house.thing("strict", "d1", limit=1, final=True, rank=9)
    registry = house.registry()
    for stop in (True, False):
        with pytest.raises(SelectionError, match=r"'strict' finds a fault in what .*at most 1"):
            select(registry, "thing", query(size=5), stop_at_first=stop)
    assert select(registry, "thing", query(size=1)).record.name == "strict"


def test_operators_choice_comes_first_and_is_the_only_import(house, query):
    """A choice wins over ranking and rank, and no other candidate is imported."""
    other = house.thing("a", "d1", rank=9)
    house.thing("b", "d2")
    chosen = select(house.registry(), "thing", query(size=1), operator="b", ranking=["a"])
    assert chosen.record.name == "b"
    assert verdicts(chosen) == {"b": "chosen", "a": "not asked"}
    assert other not in sys.modules


def test_choice_that_cannot_serve_is_an_error_with_its_reasons(house, query):
    """A choice is never replaced by a candidate that could serve."""
    house.thing("a", "d1", limit=1)
    house.thing("b", "d2", limit=100)
    with pytest.raises(
        SelectionError,
        match="'a' cannot serve: size=5, needs at most 1: ask for less",
    ):
        select(house.registry(), "thing", query(size=5), operator="a")


def test_none_that_can_serve_is_an_error_with_the_table(house, query):
    """The error shows every candidate with its reasons."""
    house.thing("a", "d1", limit=1)
    house.thing("b", "d2", limit=2)
    house.thing("c", "d3", contract=">=3")
    with pytest.raises(SelectionError) as caught:
        select(house.registry(), "thing", query(size=5))
    text = str(caught.value)
    assert "a (d1): rejected: size=5, needs at most 1" in text
    assert "b (d2): rejected: size=5, needs at most 2" in text
    assert "c (d3): incompatible: made for contract >=3" in text


def test_nothing_installed(house, query):
    """Without candidates the error says so."""
    with pytest.raises(SelectionError, match="nothing is installed"):
        select(house.registry(), "thing", query(size=5))


@pytest.mark.parametrize(
    ("facts", "colour", "served"),
    [
        ({"contract": ">=1.0,<2"}, "grey", True),  # the value is neutral
        ({"contract": ">=1.0,<2"}, "red", False),
        ({"contract": ">=1.1,<2"}, "red", True),
        ({"contract": ">=1.0,<2", "knows": "1.1"}, "red", True),
        ({}, "red", False),  # without a manifest: what the first version knew
        ({}, "grey", True),
    ],
)
def test_candidate_older_than_a_field_is_not_asked(house, query, facts, colour, served):
    """A field that is newer than the plugin and not neutral rejects it without importing it."""
    package = house.thing("a", "d", **facts)
    registry = house.registry()
    if served:
        assert select(registry, "thing", query(size=1, colour=colour)).record.name == "a"
    else:
        with pytest.raises(SelectionError, match="colour='red', needs a plugin that knows more"):
            select(registry, "thing", query(size=1, colour=colour))
        assert package not in sys.modules


def test_a_candidate_older_than_a_hint_is_asked_all_the_same(house, query):
    """A field that only tells something keeps out no plugin that does not know it."""
    house.thing("a", "d", contract=">=1.0,<2")
    chosen = select(house.registry(), "thing", query(size=1, smell="sweet"))
    assert chosen.record.name == "a"


BROKEN = """
from thing_contract import Thing
class T(Thing):
    def answer(self, query):
        BODY
"""


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("raise ValueError('boom')", "ValueError: boom"),
        ("raise SystemExit(2)", "SystemExit: 2"),
        ("return True", "answered True"),
        ("return None", "answered None"),
    ],
)
def test_answer_that_fails_is_never_silent(house, query, body, found, caplog):
    """A failing answer is fatal for a choice; else a rejected row and a warning."""
    house.add("bad", {"things bad": "T"}, BROKEN.replace("BODY", body))
    house.thing("good", "d", rank=-1)
    chosen = select(house.registry(), "thing", query(size=1))
    assert chosen.record.name == "good"
    assert verdicts(chosen)["bad"] == "rejected"
    assert found in explain_table(chosen.table)
    assert "thing:bad@bad is left out" in caplog.text
    for registry, more in (
        (house.registry(), {"operator": "bad"}),
        (house.registry(), {"on_failure": "raise"}),
        (house.registry({"FRAMEWORK_PLUGINS": "+bad"}), {}),
        (house.registry({"FRAMEWORK_PLUGINS_STRICT": "1"}), {}),
    ):
        with pytest.raises(PluginError, match="thing:bad@bad failed to answer") as caught:
            select(registry, "thing", query(size=1), **more)
        assert found in str(caught.value)


def test_candidate_that_throws_on_import_is_a_rejected_row(house, query, caplog):
    """A candidate that nobody chose and that cannot be imported loses, with a warning."""
    house.add("bad", {"things bad": "T"}, "raise SystemExit(1)")
    house.thing("good", "d")
    chosen = select(house.registry(), "thing", query(size=1))
    assert verdicts(chosen) == {"good": "chosen", "bad": "rejected"}
    assert "SystemExit" in caplog.text


def test_two_claims_to_the_winning_name_are_an_error(house, query):
    """A name that wins without being chosen must have one owner."""
    house.thing("a", "d1")
    house.thing("a", "d2")
    house.thing("b", "d3")
    registry = house.registry()
    with pytest.raises(PluginError, match="claimed by a@d1 and by a@d2"):
        select(registry, "thing", query(size=1))
    assert select(registry, "thing", query(size=1), ranking=["b"]).record.name == "b"
    assert select(registry, "thing", query(size=1), operator="a@d2").record.owner == "d2"


def test_denied_and_replaced_candidates_are_in_the_table(house, query):
    """Whoever was not asked is shown with the reason."""
    house.thing("old", "d1")
    house.thing("new", "d2", replaces=["old"])
    house.thing("no", "d3")
    registry = house.registry({"FRAMEWORK_PLUGINS": "+new", "FRAMEWORK_PLUGINS_DENY": "no"})
    text = explain_table(select(registry, "thing", query(size=1)).table)
    assert "old (d1): not asked: replaced by" in text
    assert "no (d3): denied: FRAMEWORK_PLUGINS_DENY has 'no'" in text


def test_kind_without_a_query_cannot_be_selected(house, query, extra_code):
    """Asking a kind that answers no query is an error that says so."""
    house.add("d", {"extras e": "E"}, extra_code)
    with pytest.raises(PluginError, match="not selected by a query"):
        select(house.registry(), "extra", query(size=1), operator="e")
