"""When stat loggers are called, what becomes of their errors, and what the core's own write."""

from __future__ import annotations

import asyncio
import json
import logging
import threading

import pytest

from framework import LLM, SamplingParams
from framework.contracts.stat_logger import Counter, Gauge, Histogram, Snapshot, StatLogger
from framework.engine.async_engine import AsyncEngine
from framework.errors import ConfigError, PluginError
from framework.plugins.records import Record, State
from framework.stats import loggers
from framework.stats.json_lines import JsonLines, JsonLinesOptions
from framework.stats.log_line import LogLine, LogLineOptions
from framework.stats.loggers import StatLoggers
from framework.stats.statistics import Statistics
from framework.testing.fake_model import MODEL, fake_plugins

SOON = 60.0


class Keeper(StatLogger):
    """Keeps what it was called with; `enough` is set once `log` was called `number` times."""

    period = 0.005

    def __init__(self, number=2, error=None):
        super().__init__()
        self.calls, self.threads = [], set()
        self.number, self.error = number, error
        self.enough = threading.Event()

    def start(self, snapshot):
        self.calls.append("start")

    def log(self, snapshot):
        self.calls.append(snapshot)
        self.threads.add(threading.current_thread())
        if len([c for c in self.calls if isinstance(c, Snapshot)]) >= self.number:
            self.enough.set()
        if self.error is not None:
            raise self.error

    def close(self):
        self.calls.append("close")


def record(name):
    return Record(
        kind="stat_logger",
        name=name,
        distribution="d",
        version="1",
        value="m:L",
        state=State.USED,
    )


def made(*plugins, limit=None):
    """(records, StatLoggers)"""
    records = [record(f"l{number}") for number in range(len(plugins))]
    statistics = Statistics(lambda: records)
    pairs = list(zip(records, plugins, strict=True))
    return records, StatLoggers(pairs, statistics, limit)


def test_each_has_a_thread_of_its_own_and_hears_of_the_end():
    one, two = Keeper(), Keeper()
    _, running = made(one, two)
    running.start({})
    assert one.enough.wait(SOON)
    assert two.enough.wait(SOON)
    running.close()
    for keeper in (one, two):
        first, *snapshots, last = keeper.calls
        assert (first, last) == ("start", "close")
        assert [s.final for s in snapshots] == [False] * (len(snapshots) - 1) + [True]
        assert threading.current_thread() not in keeper.threads
    assert one.threads.isdisjoint(two.threads)
    assert not [thread for thread in one.threads | two.threads if thread.is_alive()]


def test_without_a_period_there_is_only_the_last_snapshot():
    keeper = Keeper()
    keeper.period = None
    _, running = made(keeper)
    running.start({})
    running.close()
    assert [call if isinstance(call, str) else call.final for call in keeper.calls] == [
        "start",
        True,
        "close",
    ]


def test_one_that_fails_is_logged_by_name_then_off_and_the_others_go_on(caplog):
    bad, good = Keeper(number=3, error=OSError("disk full")), Keeper(number=8)
    (record, _), running = made(bad, good, limit=3)
    running.start({})
    assert bad.enough.wait(SOON)
    assert good.enough.wait(SOON)
    running.close()
    assert len(bad.calls) == 4  # start, and three attempts
    assert record.state is State.OFF
    assert "disk full" in record.reason
    assert (record.usage.calls, record.usage.errors) == (3, 3)
    assert "plugin stat_logger:l0@d failed in log" in caplog.text


def test_one_that_hangs_is_left_behind_and_named(caplog, monkeypatch):
    monkeypatch.setattr(loggers, "CLOSE_SECONDS", 0.01)
    let_go = threading.Event()
    slow = Keeper()
    slow.log = lambda snapshot: let_go.wait(SOON)
    _, running = made(slow)
    before = set(threading.enumerate())
    running.start({})
    begun = set(threading.enumerate()) - before
    running.close()
    let_go.set()
    for thread in begun:
        thread.join(SOON)
    assert "plugin stat_logger:l0@d has not ended 0.01 s after the engine" in caplog.text


@pytest.mark.parametrize("period", [0, -1.0, float("nan"), float("inf"), "10", True])
def test_a_period_that_is_none_stops_the_start(period):
    keeper = Keeper()
    keeper.period = period
    _, running = made(keeper)
    with pytest.raises(PluginError, match="period"):
        running.start({})
    running.close()
    assert keeper.calls == []


def test_if_one_cannot_start_those_before_it_are_closed():
    class Broken(Keeper):
        def start(self, snapshot):
            raise ValueError("no")

    first, broken = Keeper(), Broken()
    broken.plugin_id = "stat_logger:l1@d"
    _, running = made(first, broken)
    with pytest.raises(PluginError, match="l1@d failed while starting to log statistics"):
        running.start({})
    running.close()
    assert first.calls == ["start", "close"]
    assert broken.calls == []


def echo(**options):
    return LLM(MODEL, plugins=fake_plugins(), executor="echo", **options)


def test_without_loggers_nothing_is_counted():
    """A step then pays one look at None."""
    before = set(threading.enumerate())
    with echo() as llm:
        assert llm._engine.client._events._statistics is None
        begun = set(threading.enumerate()) - before
        assert not [thread for thread in begun if thread.name.startswith("stats ")]


def test_json_lines_hold_every_metric(tmp_path):
    path = tmp_path / "stats.jsonl"
    path.write_text('{"before": 1}\n')
    options = {"stat_logger.json_lines.path": str(path)}
    with echo(stat_loggers=["json_lines"], plugin_options=options) as llm:
        llm.generate(["abc", "abcd"], SamplingParams(max_tokens=None))
    before, last = map(json.loads, path.read_text().splitlines())
    assert before == {"before": 1}
    assert last["final"] is True
    assert last["uptime"] > 0
    metrics = {(m["name"], *m["labels"].values()): m for m in last["metrics"]}
    assert metrics["prompt_tokens",]["value"] == 7
    assert metrics["request_success", "stop"] == {
        "type": "counter",
        "name": "request_success",
        "labels": {"finished_reason": "stop"},
        "value": 2,
    }
    first = metrics["time_to_first_token_seconds",]
    assert first["type"] == "histogram"
    assert sum(first["counts"]) == 2
    assert len(first["counts"]) == len(first["bounds"]) + 1


def test_a_file_that_cannot_be_written_stops_the_start(tmp_path):
    options = {"stat_logger.json_lines.path": str(tmp_path / "none" / "stats.jsonl")}
    with pytest.raises(ConfigError, match="statistics cannot be written"):
        echo(stat_loggers=["json_lines"], plugin_options=options)
    with pytest.raises(PluginError, match="path: Field required"):
        echo(stat_loggers=["json_lines"])


def test_a_json_line_is_there_as_soon_as_it_is_logged(tmp_path):
    path = tmp_path / "stats.jsonl"
    logger = JsonLines(JsonLinesOptions(path=path))
    logger.start(lambda: snapshot(1))
    logger.log(snapshot(1))
    assert json.loads(path.read_text())["uptime"] == 1
    logger.close()


def snapshot(uptime, generated=0, prompt=0, running=0, queries=0, hits=0, lost=0, final=False):
    return Snapshot(
        time=0.0,
        uptime=uptime,
        final=final,
        metrics=(
            Gauge(name="num_requests_running", help="", value=running),
            Gauge(name="num_requests_waiting", help="", value=0),
            Gauge(name="kv_cache_usage_perc", help="", value=0.125),
            Counter(name="prompt_tokens", help="", value=prompt),
            Counter(name="generation_tokens", help="", value=generated),
            Counter(name="prefix_cache_queries", help="", value=queries),
            Counter(name="prefix_cache_hits", help="", value=hits),
            Counter(name="num_preemptions", help="", value=lost),
            Histogram(name="h", help="", bounds=(1.0,), counts=(2, 1), sum=4.0),
        ),
    )


def test_log_lines_tell_rates_since_the_line_before_and_nothing_while_idle(caplog):
    caplog.set_level(logging.INFO, "framework.stats")
    logger = LogLine(LogLineOptions(period=2))
    assert logger.period == 2
    logger.log(snapshot(2, generated=10, prompt=4, running=1, queries=4, hits=1))
    logger.log(snapshot(4, generated=40, prompt=4, running=1, queries=4, hits=1, lost=1))
    logger.log(snapshot(6, generated=40, prompt=4, queries=4, hits=1, lost=1))
    logger.log(snapshot(8, generated=40, prompt=4, queries=4, hits=1, lost=1, final=True))
    assert caplog.messages == [
        "all 2.0 s: prompt 2.0 tokens/s, generation 5.0 tokens/s, running 1, waiting 0, "
        "cache 12.5%, prefix hits 25.0%",
        "last 2.0 s: prompt 0.0 tokens/s, generation 15.0 tokens/s, running 1, waiting 0, "
        "cache 12.5%, preempted 1",
        "all 8.0 s: prompt 0.5 tokens/s, generation 5.0 tokens/s, running 0, waiting 0, "
        "cache 12.5%, prefix hits 25.0%, preempted 1",
    ]


def test_a_snapshot_is_asked_by_name_and_labels():
    found = snapshot(1, generated=3)
    assert found.value("generation_tokens") == 3
    assert found.value("h") == 4.0
    assert found.get("h").count == 3
    with pytest.raises(KeyError):
        found.get("generation_tokens", plugin="x")


def test_an_engine_on_an_event_loop_logs_too(tmp_path):
    """With the core at the other end of a link; the last line is there when it has shut down."""
    path = tmp_path / "stats.jsonl"

    async def run():
        engine = AsyncEngine(
            MODEL,
            plugins=fake_plugins(),
            executor="echo",
            in_process=True,
            stat_loggers=["json_lines"],
            plugin_options={"stat_logger.json_lines.path": str(path)},
        )
        async with engine:
            async for _ in engine.generate("abc", SamplingParams(max_tokens=None)):
                pass

    asyncio.run(run())
    [last] = map(json.loads, path.read_text().splitlines())
    values = {metric["name"]: metric.get("value") for metric in last["metrics"]}
    assert values["prompt_tokens"] == 3
    assert values["generation_tokens"] == 4
    info = next(m for m in last["metrics"] if m["name"] == "cache_config_info")
    assert info["labels"]["page_tokens"] == "4"


def test_an_engine_whose_logger_cannot_start_leaves_nothing_running(tmp_path):
    async def run():
        engine = AsyncEngine(
            MODEL,
            plugins=fake_plugins(),
            executor="echo",
            in_process=True,
            stat_loggers=["json_lines"],
            plugin_options={"stat_logger.json_lines.path": str(tmp_path)},
        )
        with pytest.raises(ConfigError, match="cannot be written"):
            await engine.start()

    before = set(threading.enumerate())
    asyncio.run(run())
    for thread in set(threading.enumerate()) - before:
        thread.join(SOON)
    assert set(threading.enumerate()) <= before
