"""A start names the plugin whose import does what it should not, and goes on."""

from __future__ import annotations

import math
import sys
import threading

import pytest

from framework.plugins.records import State

GOOD = "from thing_contract import Thing\nclass T(Thing):\n    def answer(self, query): ...\n"
BAD_END = "class Bad:\n    def __del__(self): raise ValueError('at the end')\nBad()\n" + GOOD


def test_an_error_in_del_during_the_import_names_the_plugin(house, caplog, capsys):
    """Python itself would only show the function; the listener of before hears it as well."""
    house.add("d", {"things t": "T"}, BAD_END)
    heard = []
    before, sys.unraisablehook = sys.unraisablehook, heard.append
    try:
        registry = house.registry()
        registry.load("thing", "t")
        assert sys.unraisablehook == heard.append
    finally:
        sys.unraisablehook = before
    assert "plugin thing:t@d, on import: Bad.__del__ raised ValueError: at the end" in caplog.text
    assert len(heard) == 1
    assert registry.records("thing")[0].state is State.LOADED


@pytest.mark.parametrize("daemon", [False, True])
def test_a_thread_that_the_end_has_to_wait_for_names_the_plugin(house, caplog, daemon):
    house.add(
        "d",
        {"things t": "T"},
        "import threading\ngo = threading.Event()\n"
        f"thread = threading.Thread(target=go.wait, name='mine', daemon={daemon})\nthread.start()\n"
        + GOOD,
    )
    cls = house.registry().load("thing", "t")
    module = sys.modules[cls.__module__]
    module.go.set()
    module.thread.join()
    assert ("thing:t@d starts a thread when it is imported, mine" in caplog.text) is not daemon


@pytest.mark.parametrize("seconds", [math.inf, 1e308])
def test_an_import_may_take_longer_than_a_clock_can_wait(house, monkeypatch, seconds):
    """A timer that is asked for more dies with a traceback of its own."""
    asked = []

    def timer(interval, *rest):
        asked.append(interval)
        return made(interval, *rest)

    made = threading.Timer
    monkeypatch.setattr("framework.plugins.watch.threading.Timer", timer)
    house.add("d", {"things t": "T"}, GOOD)
    registry = house.registry()
    registry.slow_import = seconds
    registry.load("thing", "t")
    assert asked == [threading.TIMEOUT_MAX]


def test_a_heavy_library_at_import_names_the_plugin(house, caplog, tmp_path, monkeypatch):
    """Once, for the plugin that loads it; one that finds it loaded costs nothing."""
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "vllm.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path / "fake"))
    house.add("d1", {"things a": "T"}, "import vllm\n" + GOOD)
    house.add("d2", {"things b": "T"}, "import vllm\n" + GOOD)
    registry = house.registry()
    registry.load("thing", "a")
    registry.load("thing", "b")
    monkeypatch.delitem(sys.modules, "vllm")
    assert caplog.text.count("imports vllm when it is imported") == 1
    assert "plugin thing:a@d1 imports vllm" in caplog.text


def test_before_an_import_its_plugin_is_named_and_not_where_it_is_loaded_already(house, capsys):
    house.add("d", {"things t": "T"}, GOOD)
    for line in ("importing plugin thing:t@d", ""):
        house.registry().load("thing", "t")
        said = capsys.readouterr().err
        assert line in said
        assert bool(said) is bool(line)
