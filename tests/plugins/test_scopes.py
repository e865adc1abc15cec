"""A plugin is loaded in the processes of its scopes and in no other."""

from __future__ import annotations

import sys

import pytest

from framework.errors import PluginError, SelectionError
from framework.plugins.kinds import KINDS, Scope
from framework.plugins.records import State
from framework.plugins.selection import select


def test_a_candidate_of_another_process_is_not_seen_and_not_imported(house):
    """Only what runs here is a candidate; naming another is an error that says where it runs."""
    here = house.thing("here", "d1", scopes=["worker", "engine_core"])
    there = house.thing("there", "d2", scopes=["worker"], rank=9)
    registry = house.registry(scopes={Scope.ENGINE_CORE})
    assert [record.name for record in registry.candidates("thing")] == ["here"]
    with pytest.raises(PluginError, match="thing:there@d2 does not run in this process") as caught:
        registry.load("thing", "there")
    assert (caught.value.expected, caught.value.found) == (
        "a thing for engine_core",
        "one for worker",
    )
    (record,) = [r for r in registry.records("thing") if r.name == "there"]
    with pytest.raises(PluginError, match="does not run in this process"):
        registry.load_record(record)
    assert not {here, there} & set(sys.modules)
    worker = house.registry(scopes={Scope.WORKER})
    assert [record.name for record in worker.candidates("thing")] == ["there", "here"]


def test_facts_that_are_unknown_count_as_the_scopes_of_the_kind(house):
    """Without a manifest a plugin runs wherever its kind does, and nowhere else."""
    house.thing("a", "d")
    assert len(house.registry(scopes={Scope.WORKER}).candidates("thing")) == 1
    assert house.registry(scopes={Scope.FRONT_END}).candidates("thing") == []


def test_many_run_each_in_its_own_processes(house, extra_code):
    """Of plugins of which many run, each process activates its own."""
    for name, scopes in (("w", ["worker"]), ("e", ["engine_core"]), ("both", [])):
        manifest = house.manifest("extra", name, scopes=scopes)
        house.add(f"d-{name}", {f"extras {name}": "E"}, extra_code, manifest)
    env = {"FRAMEWORK_PLUGINS": "*"}
    for scope, names in ((Scope.WORKER, ["both", "w"]), (Scope.ENGINE_CORE, ["both", "e"])):
        registry = house.registry(env, scopes={scope})
        assert [record.name for record in registry.activated("extra")] == names


def test_a_scope_in_which_a_plugin_cannot_work_is_incompatible(house):
    """A plugin that leaves out a process in which each of its kind has to run is not loaded."""
    package = house.thing("half", "d", scopes=["engine_core"])
    registry = house.registry()
    (record,) = registry.records("thing")
    assert record.state is State.INCOMPATIBLE
    assert record.reason == ("runs in engine_core only; each thing has to run in worker too")
    with pytest.raises(PluginError, match="has to run in worker too"):
        registry.load("thing", "half")
    from thing_contract import ThingQuery

    with pytest.raises(SelectionError, match="has to run in worker too"):
        select(registry, "thing", ThingQuery(size=1))
    assert package not in sys.modules


def test_each_kind_needs_some_of_its_scopes():
    """Only kinds whose plugins may run anywhere need no process at all."""
    assert {kind.name for kind in KINDS if not kind.needs} == {"hooks", "stat_logger"}
