"""What is counted, against a course of events with known times."""

from __future__ import annotations

import numpy as np
import pytest

from framework import LLM, SamplingParams
from framework.contracts.messages import EngineInput, EngineOutputs, EngineStats
from framework.contracts.sampling import SamplingParams as Sampling
from framework.contracts.stat_logger import Counter, Gauge, Histogram, StatLogger
from framework.engine.output_processor import Ended
from framework.plugins.records import Record, State, Usage
from framework.stats.buckets import SECONDS, Buckets
from framework.stats.statistics import Statistics
from framework.stats.tenants import MOST_TENANTS, OTHERS, TenantUsage
from framework.testing.fake_model import MODEL, fake_plugins

P0 = {
    "num_requests_running": Gauge,
    "num_requests_waiting": Gauge,
    "kv_cache_usage_perc": Gauge,
    "cache_config_info": Gauge,
    "prefix_cache_queries": Counter,
    "prefix_cache_hits": Counter,
    "num_preemptions": Counter,
    "prompt_tokens": Counter,
    "generation_tokens": Counter,
    "request_success": Counter,
    "core_restarts": Counter,
    "time_to_first_token_seconds": Histogram,
    "inter_token_latency_seconds": Histogram,
    "e2e_request_latency_seconds": Histogram,
    "request_queue_time_seconds": Histogram,
    "request_prefill_time_seconds": Histogram,
    "request_decode_time_seconds": Histogram,
    "iteration_tokens_total": Histogram,
}


class Keep(StatLogger):
    """Asks for snapshots by itself."""

    period = None
    taken = None

    def start(self, snapshot):
        type(self).taken = staticmethod(snapshot)

    def log(self, snapshot):
        assert snapshot.final


class Course:
    """Statistics, and a clock that the test moves."""

    def __init__(self, records=()):
        self.now = 100.0
        self.statistics = Statistics(lambda: records, clock=lambda: self.now)

    def add(self, *names, prompt=5):
        self.statistics.added(
            EngineInput(
                request_id=name,
                tokens=np.zeros(prompt, np.int32),
                sampling=Sampling(),
                seed=0,
                max_total=99,
            )
            for name in names
        )

    def step(self, seconds, ids, counts, computed, waited=None, **stats):
        self.now += seconds
        self.statistics.stepped(
            EngineOutputs(
                step_id=1,
                request_ids=ids,
                token_offsets=np.cumsum([0, *counts], dtype=np.int32),
                token_ids=np.zeros(sum(counts), np.int32),
                waited=np.array(waited or [0.0] * len(ids)),
                num_computed=computed,
                stats=EngineStats(**stats),
            )
        )

    def end(self, seconds, name, reason="stop"):
        self.now += seconds
        self.statistics.ended([Ended(request_id=name, reason=reason, num_output_tokens=1)])

    def total(self, name):
        metric = self.statistics.snapshot().get(name)
        return pytest.approx((metric.count, metric.sum))


def test_a_snapshot_has_the_whole_set_of_metrics_with_their_types():
    found = Course().statistics.snapshot().metrics
    assert {metric.name: type(metric) for metric in found} == P0
    assert all(metric.help.endswith(".") for metric in found)


def test_the_times_of_a_request_are_those_of_its_course():
    one = Course()
    one.add("a")
    one.step(0.5, ("a",), [0], computed=3)  # a chunk of the prompt
    one.step(1.0, ("a",), [1], computed=2, waited=[0.25])
    assert one.total("time_to_first_token_seconds") == (1, 1.5)
    assert one.total("request_queue_time_seconds") == (1, 0.25)
    assert one.total("request_prefill_time_seconds") == (1, 1.25)
    one.step(0.2, ("a",), [1], computed=1)
    one.step(0.3, ("a",), [2], computed=2)  # drafts were accepted
    assert one.total("inter_token_latency_seconds") == (2, 0.5)
    one.end(1.0, "a", "length")
    assert one.total("request_decode_time_seconds") == (1, 0.5)
    assert one.total("e2e_request_latency_seconds") == (1, 3.0)
    assert one.total("iteration_tokens_total") == (4, 8)
    found = one.statistics.snapshot()
    assert found.value("prompt_tokens") == 5
    assert found.value("generation_tokens") == 4
    assert found.value("request_success", finished_reason="length") == 1
    assert found.value("request_success", finished_reason="stop") == 0


def test_a_run_of_equal_steps_counts_as_single_steps_do():
    """The requests of such a run are not visited; here they are, where rows change places."""
    totals = []
    for same in (True, False):
        one, ids = Course(), ("a", "b")
        one.add(*ids)
        for number in range(6):
            rows = ids if same or number % 2 else ("b", "a")
            one.step(1 + number, rows, [1, 1], computed=2)
        one.end(0.5, "a")
        one.step(2.0, ("b",), [1], computed=1)
        one.end(0.5, "b")
        names = [name for name, kind in P0.items() if kind is Histogram]
        found = one.statistics.snapshot()
        totals.append([(name, found.get(name).counts, found.get(name).sum) for name in names])
        assert one.total("inter_token_latency_seconds") == (11, 2 * (2 + 3 + 4 + 5 + 6) + 2.5)
        assert one.total("request_decode_time_seconds") == (2, 20 + 22.5)
    assert totals[0] == totals[1]


def test_a_row_without_a_token_does_not_begin_a_run():
    """The same rows before and after, but one of them got nothing in between."""
    one, ids = Course(), ("a", "b")
    one.add(*ids)
    one.step(1.0, ids, [1, 1], computed=10)
    one.step(1.0, ids, [1, 0], computed=5)  # b was preempted, and computes again
    one.step(1.0, ids, [1, 1], computed=2)
    one.step(1.0, ids, [1, 1], computed=2)
    assert one.total("inter_token_latency_seconds") == (5, 1 + 1 + 2 + 1 + 1)


def test_a_request_that_ends_without_a_token_has_no_time_to_it():
    one = Course()
    one.add("a", "b")
    one.end(1.0, "a", "error")
    one.end(1.0, "unknown", "abort")
    assert one.total("time_to_first_token_seconds") == (0, 0)
    assert one.total("request_decode_time_seconds") == (0, 0)
    assert one.total("e2e_request_latency_seconds") == (1, 1.0)


def test_a_prompt_counts_when_it_was_computed_though_no_token_came():
    """As of a request that was pooled or scored; not of one that failed or was aborted."""
    one = Course()
    one.add("a", "b", "c", "d")
    for name, reason in (("a", "stop"), ("b", "length"), ("c", "error"), ("d", "abort")):
        one.end(1.0, name, reason)
    assert one.statistics.snapshot().value("prompt_tokens") == 2 * 5


def test_gauges_are_those_of_the_last_step():
    one = Course()
    one.statistics.cache = {"num_pages": "9"}
    one.step(1, (), [], 0, running=3, waiting=2, pages_used=1, pages_total=4, preemptions=7)
    found = one.statistics.snapshot(final=True)
    assert found.final
    assert found.uptime == 1.0
    assert found.value("num_requests_running") == 3
    assert found.value("num_requests_waiting") == 2
    assert found.value("kv_cache_usage_perc") == 0.25
    assert found.value("num_preemptions") == 7
    assert found.value("cache_config_info", num_pages="9") == 1


def test_what_is_known_of_plugins_is_in_the_snapshot():
    """Load time and whether it is off, of those that were loaded; calls, where there were some."""
    row = {"kind": "hooks", "distribution": "d", "version": "1", "value": "m:H"}
    off = Record(name="off", **row, state=State.OFF, cls=object, load_seconds=0.5)
    off.usage = Usage(calls=4, errors=3, seconds=0.1)
    used = Record(name="used", **row, state=State.USED, cls=object, load_seconds=0.25)
    found = Course([off, used, Record(name="other", **row)]).statistics.snapshot()
    shown = {(m.name, m.labels["plugin"]): m.value for m in found.metrics if "plugin" in m.labels}
    assert shown == {
        ("plugin_load_seconds", "hooks:off@d"): 0.5,
        ("plugin_load_seconds", "hooks:used@d"): 0.25,
        ("plugin_off", "hooks:off@d"): 1,
        ("plugin_off", "hooks:used@d"): 0,
        ("plugin_calls", "hooks:off@d"): 4,
        ("plugin_errors", "hooks:off@d"): 3,
        ("plugin_seconds", "hooks:off@d"): 0.1,
    }


def test_a_value_on_a_bound_belongs_below_it():
    buckets = Buckets("n", "h.", (1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.5):
        buckets.add(value)
    assert buckets.read().counts == (2, 2, 1)
    assert buckets.read().count == 5
    assert list(SECONDS) == sorted(SECONDS)


def test_a_real_engine_counts_what_it_answers():
    """Over the echo model, with stops, drops and a shared prefix."""
    plugins = {**fake_plugins(), "stat_logger:keep": f"{__name__}:Keep"}
    with LLM(MODEL, plugins=plugins, executor="echo", stat_loggers=["keep"]) as llm:
        whole = SamplingParams(max_tokens=None)
        outputs = llm.generate(["abcdefgh" * 4, "b" * 9], whole)
        outputs += llm.generate(["abcdefgh" * 4], SamplingParams(max_tokens=7, stop=["e"]))
        stream = llm.stream("abc", whole)
        next(stream)
        stream.close()
        found = Keep.taken()
    ends = {m.labels["finished_reason"]: m.value for m in found.metrics if "success" in m.name}
    assert ends == {"stop": 3, "length": 0, "abort": 1, "error": 0}
    assert found.value("prompt_tokens") == 32 + 9 + 32 + 3
    told = sum(len(output.outputs[0].token_ids) for output in outputs)
    assert found.value("generation_tokens") >= told + 1
    assert found.value("prefix_cache_hits") == llm.stats.prefix_hits > 0
    assert found.get("time_to_first_token_seconds").count == 4
    assert found.get("e2e_request_latency_seconds").count == 4
    steps = found.get("iteration_tokens_total")
    # All but the last token of each request are computed, and none twice.
    assert 32 + 9 + 3 < steps.sum <= 2 * (32 + 9 + 32 + 3)
    assert found.value("num_requests_running") == 0
    [info] = [metric for metric in found.metrics if metric.name == "cache_config_info"]
    assert info.labels == {"num_pages": "512", "page_tokens": "4", "page_bytes": "32"}
    plugin = "stat_logger:keep@ad-hoc"
    assert found.value("plugin_off", plugin=plugin) == 0


def test_tenants_beyond_a_number_are_counted_together():
    usage = TenantUsage()
    for number in range(MOST_TENANTS + 5):
        usage.add(f"tenant {number}", 2, 3)
    usage.add("tenant 0", 1, 1)
    usage.add("", 7, 7)
    found = {(m.name, m.labels["tenant"]): m.value for m in usage.read()}
    assert len(found) == 3 * (MOST_TENANTS + 1)
    assert found["tenant_requests", OTHERS] == 5
    assert found["tenant_prompt_tokens", "tenant 0"] == 3
    assert found["tenant_generation_tokens", OTHERS] == 15


def test_counters_go_on_rising_when_another_core_counts_from_nothing():
    course = Course()
    course.step(1, ("a",), [1], 1, prefix_queries=5, prefix_hits=2, preemptions=1, running=3)
    course.statistics.core_ended()
    assert course.statistics.snapshot().value("num_requests_running") == 0
    course.statistics.core_restarted()
    course.step(1, ("b",), [1], 1, prefix_queries=4, prefix_hits=1, preemptions=0)
    snapshot = course.statistics.snapshot()
    names = ("prefix_cache_queries", "prefix_cache_hits", "num_preemptions", "core_restarts")
    assert [snapshot.value(name) for name in names] == [9, 3, 1, 1]


def test_speculation_is_counted_under_the_usual_names_once_there_were_drafts():
    course = Course()
    course.add("a")
    course.step(1, ("a",), [1], 1)
    names = [metric.name for metric in course.statistics.snapshot().metrics]
    assert not [name for name in names if name.startswith("spec_decode")]
    course.step(2, ("a",), [3], 4, drafted=1, drafts=3, accepted=(1, 1))
    course.statistics.core_ended()  # counters only rise, also where another core begins anew
    course.step(3, ("a",), [1], 2, drafted=2, drafts=2, accepted=(1,))
    found = course.statistics.snapshot()
    assert found.value("spec_decode_num_drafts") == 3
    assert found.value("spec_decode_num_draft_tokens") == 5
    assert found.value("spec_decode_num_accepted_tokens") == 3
    by_place = [
        found.value("spec_decode_num_accepted_tokens_per_pos", position=place) for place in "01"
    ]
    assert by_place == [2, 1]
