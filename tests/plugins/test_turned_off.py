"""What a plugin turns off is a line of the start-up log."""

from __future__ import annotations

import pytest

from framework.errors import PluginError
from framework.plugins.selection import select

COSTS = """
from framework.contracts.base import Supported, TurnedOff
from thing_contract import Thing
class T(Thing):
    def answer(self, query):
        return Supported(turns_off=({what},))
"""
LINE = "graphs is off because of plugin thing:slow@d: it has no static shapes"


@pytest.mark.parametrize("operator", [None, "slow"])
def test_what_the_chosen_one_turns_off_is_noted_once(house, operator):
    """Whoever chose it, the line names feature, plugin and reason; a loser's costs do not count."""
    code = COSTS.format(what="TurnedOff(feature='graphs', reason='it has no static shapes')")
    house.add("d", {"things slow": "T"}, code, house.manifest("thing", "slow", rank=2))
    house.add("e", {"things other": "T"}, code)
    registry = house.registry()
    from thing_contract import ThingQuery

    for _ in range(2):
        select(registry, "thing", ThingQuery(size=1), operator=operator)
    assert registry.notes == [LINE]


def test_an_answer_that_turns_off_something_else_is_named(house):
    """A line that could not be written is a fault of the plugin that answered it."""
    house.add("d", {"things bad": "T"}, COSTS.format(what="'graphs'"))
    registry = house.registry()
    from thing_contract import ThingQuery

    with pytest.raises(PluginError, match=r"thing:bad@d failed to answer.*no TurnedOff"):
        select(registry, "thing", ThingQuery(size=1), operator="bad")


@pytest.mark.parametrize("use", ["candidates", "find"])
def test_what_is_replaced_is_noted(house, use):
    """A plugin for which another stands in does not vanish without a word."""
    house.thing("old", "d1")
    house.thing("new", "d2", replaces=["old"])
    assert house.registry().notes == []
    registry = house.registry({"FRAMEWORK_PLUGINS": "+new"})
    registry.candidates("thing") if use == "candidates" else registry.find("thing", "old")
    assert registry.notes == ["thing:old@d1 is off because of plugin thing:new@d2: it replaces it"]


def test_what_became_of_each_plugin_is_logged_once_per_state(house, caplog, extra_code):
    """The start-up log has the states and reasons of `plugins list`; who was not used has none."""
    house.thing("used", "d1")
    house.thing("idle", "d2")
    house.add("d3", {"extras denied": "E"}, extra_code)
    house.add("d4", {"things bad": "T"}, "raise RuntimeError('boom')")
    registry = house.registry()
    registry.create("thing", "used")
    with pytest.raises(PluginError):
        registry.load("thing", "bad")
    with caplog.at_level("INFO"):
        registry.log_states()
        registry.log_states()
    lines = [line for line in caplog.messages if " is " in line and line.startswith("plugin ")]
    states = {line.split()[1]: line.split(" is ")[1].split(",")[0].split(":")[0] for line in lines}
    assert states == {
        "thing:used@d1": "used",
        "extra:denied@d3": "denied",
        "thing:bad@d4": "failed",
    }
    assert len(lines) == 3
    assert any("loaded in 0.0" in line for line in lines)
