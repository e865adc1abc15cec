from __future__ import annotations

import logging

import pytest

from framework.contracts.hooks import HookSpecs, hookimpl
from framework.plugins.breaker import Breaker
from framework.plugins.hooks import build_hooks
from framework.plugins.records import Record, State

CODE = """
from framework.contracts.hooks import HookSpecs, hookimpl
class H(HookSpecs):
    calls = []
    faulty = True
    @hookimpl
    def request_added(self, request):
        self.calls.append(request)
        if H.faulty:
            raise RuntimeError(f"no {request}")
    @hookimpl
    def engine_closed(self):
        self.calls.append("closed")
"""


@pytest.fixture
def two(house):
    """(registry, the class of a plugin that fails, of one that does not)."""
    import importlib

    modules = [
        house.add(f"d-{name}", {f"hooks {name}": "H"}, CODE, house.manifest("hooks", name))
        for name in ("bad", "good")
    ]
    registry = house.registry({"FRAMEWORK_PLUGINS": "+hooks:*"})
    bad, good = (importlib.import_module(module).H for module in modules)
    good.faulty = False
    return registry, bad, good


def records_of(registry):
    return {record.name: record for record in registry.records("hooks")}


def test_a_plugin_that_fails_again_and_again_is_off_and_the_others_go_on(two, caplog):
    """All of it, until the next start; its record, its usage and the log say so."""
    registry, bad, good = two
    hooks = build_hooks(registry, error_limit=3)
    for number in range(5):
        hooks.caller("request_added")(request=number)
    hooks.caller("engine_closed")()
    assert bad.calls == [0, 1, 2]
    assert good.calls == [0, 1, 2, 3, 4, "closed"]
    found = records_of(registry)
    record = found["bad"]
    assert record.state is State.OFF
    assert not record.usable
    reason = "switched off after 3 errors in a row in hook 'request_added': RuntimeError: no 2"
    assert record.reason == reason
    assert (record.usage.calls, record.usage.errors) == (3, 3)
    shown = record.as_dict()
    assert (shown["state"], shown["reason"]) == ("off", reason)
    assert (shown["calls"], shown["errors"]) == (3, 3)
    told = [line.getMessage() for line in caplog.records if line.levelno == logging.ERROR]
    assert told[-1] == f"plugin hooks:bad@d-bad is off until the next start: {reason}"
    assert found["good"].state is State.USED
    assert (found["good"].usage.calls, found["good"].usage.errors) == (6, 0)


def test_a_call_that_succeeds_begins_the_count_anew(two):
    """Errors must follow each other to switch a plugin off."""
    registry, bad, _ = two
    call = build_hooks(registry, error_limit=2).caller("request_added")
    for faulty in (True, False) * 3:
        bad.faulty = faulty
        call(request="r")
    assert records_of(registry)["bad"].state is State.USED
    assert len(bad.calls) == 6


def test_without_a_limit_a_plugin_is_never_off(two):
    """It is called, and logged, as often as there is something to tell."""
    registry, bad, _ = two
    call = build_hooks(registry).caller("request_added")
    for number in range(20):
        call(request=number)
    assert len(bad.calls) == 20


def test_a_plugin_that_is_off_spoils_no_later_choice(two):
    """It did start: that it was named exactly does not make its end an error of the start."""
    registry, _, _ = two
    call = build_hooks(registry, error_limit=1).caller("request_added")
    call(request=1)
    registry.check()
    assert [record.name for record in registry.activated("hooks")] == ["good"]


def test_what_calls_cost_is_measured(monkeypatch):
    """Seconds in the plugin, failed calls included."""
    record = Record(kind="hooks", name="h", distribution="d", version="1", value="m:H")
    ticks = iter(range(0, 100, 5))
    monkeypatch.setattr("framework.plugins.breaker.perf_counter", lambda: next(ticks))
    breaker = Breaker(record, None)

    def fails():
        raise ValueError

    for method in (fails, lambda: None, fails):
        breaker.guarded(method, "hook")()
    assert (record.usage.calls, record.usage.errors, record.usage.seconds) == (3, 2, 15)


def test_an_interrupt_from_the_keyboard_passes():
    """Whoever waits for an answer must be able to end it, even within a hook."""
    record = Record(kind="hooks", name="h", distribution="d", version="1", value="m:H")

    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Breaker(record, 1).guarded(interrupted, "hook")()
    assert record.usage.errors == 0


def test_marks_and_arguments_survive_the_guard():
    """pluggy reads both from the guarded method."""

    class Fewer(HookSpecs):
        heard: list

        @hookimpl
        def request_finished(self, reason):
            self.heard.append(reason)

    Fewer.heard = []
    record = Record(kind="hooks", name="h", distribution="d", version="1", value="m:H")
    guarded = Breaker(record, 1).guarded(Fewer().request_finished, "hook")
    guarded("stop")
    assert Fewer.heard == ["stop"]
    assert guarded.__wrapped__.__name__ == "request_finished"
