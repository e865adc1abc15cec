"""Limits of admission and of a step: threshold, watermark, whole sequences, queue, ageing."""

from __future__ import annotations

import numpy as np
import pytest

from framework.contracts.scheduling_policy import RequestArrays
from framework.core.policies import Priority, PriorityOptions
from framework.errors import ConfigError, OverloadedError


class Clock:
    """Stands still until it is set."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def tokens_of(plan, slot):
    rows = np.flatnonzero(plan.slots == slot)
    return int(plan.num_new[rows[0]]) if len(rows) else 0


def test_a_long_prefill_alone_takes_the_whole_budget(engine):
    one = engine(max_num_batched_tokens=20, long_prefill_threshold=4)
    one.add("long", [1] * 40)
    one.step()
    assert one.runner.plans[0].num_tokens == 20


def test_a_long_prefill_among_others_is_held_to_the_threshold(engine, alone):
    one = engine(max_num_batched_tokens=20, long_prefill_threshold=4)
    one.add("long", [1] * 40)
    one.add("short", [2] * 6)
    answers = one.run()
    first = one.runner.plans[0]
    assert first.num_new.tolist() == [4, 4]
    assert all(plan.num_new.max() <= 4 for plan in one.runner.plans if plan.num_rows > 1)
    assert answers["long"].tokens == alone([1] * 40).tokens


def test_the_adaptive_share_divides_the_budget_among_those_that_prefill(engine):
    one = engine(max_num_batched_tokens=24, long_prefill_threshold="auto")
    for name in "abc":
        one.add(name, [ord(name)] * 40)
    one.step()
    assert one.runner.plans[0].num_new.tolist() == [8, 8, 8]


def test_active_requests_are_limited_apart_from_slots(engine):
    one = engine(max_num_seqs=6, max_num_active=2)
    for name in "abcdef":
        one.add(name, [ord(name)] * 6, 5)
    one.run()
    assert max(plan.num_rows for plan in one.runner.plans) == 2


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_the_watermark_keeps_pages_free_when_a_request_is_admitted(engine, share):
    one = engine(runner={"num_pages": 21}, watermark=share)
    for name in "abcd":
        one.add(name, [ord(name)] * 15, 4)
    one.step()
    assert one.core.stats.running == (4 if share == 0 else 2)
    one.run()


def test_a_whole_sequence_that_must_fit_is_never_preempted(engine):
    counts = {}
    for must in (False, True):
        one = engine(runner={"num_pages": 16}, whole_sequence_must_fit=must)
        for index in range(6):
            one.add(str(index), [index] * 5, 20)
        one.run()
        counts[must] = one.core.stats.preemptions
    assert counts[False] > 0
    assert counts[True] == 0


def test_a_full_queue_refuses_and_takes_again_when_there_is_room(engine):
    one = engine(max_num_seqs=1, max_queued_requests=2)
    one.add("runs", [1], 3)
    one.step()
    one.add("a", [2])
    one.add("b", [3])
    with pytest.raises(OverloadedError, match="queue is full") as error:
        one.add("c", [4])
    assert error.value.retry_after > 0
    one.run()
    one.add("c", [4])
    assert one.run()["c"].reason == "length"


def test_a_request_that_waits_too_long_in_the_queue_ends_with_an_error(engine):
    clock = Clock()
    one = engine(clock=clock, max_num_seqs=1, queue_timeout=5.0)
    one.add("runs", [1], 30)
    one.add("waits", [2])
    one.step()
    clock.now += 6
    one.add("fresh", [3])
    answers = one.run()
    assert answers["runs"].reason == answers["fresh"].reason == "length"
    assert answers["waits"].reason == "error"
    assert "5.0 s" in answers["waits"].error


def test_the_queue_limit_does_not_end_a_preempted_request(engine):
    clock = Clock()
    one = engine(clock=clock, runner={"num_pages": 12}, queue_timeout=5.0)
    for name in "abc":
        one.add(name, [ord(name)] * 9, 20)
    while not one.core.stats.preemptions:
        one.step()
    clock.now += 60
    assert {answer.reason for answer in one.run().values()} == {"length"}


def arrays(priority, arrived_at):
    n = len(priority)
    zeros = np.zeros(n, np.int64)
    return RequestArrays(
        arrival=np.arange(n),
        arrived_at=np.array(arrived_at, float),
        priority=np.array(priority),
        tenant=zeros,
        prompt=zeros,
        known=zeros,
        limit=zeros,
        computed=zeros,
        now=max(arrived_at),
    )


def test_waiting_makes_up_for_priority_after_a_bounded_time():
    policy = Priority(PriorityOptions(ageing_seconds=10))
    # One of priority 2 that came at 0 is behind those of priority 0 until 20 s.
    keys = policy.keys(arrays([2, 0, 0], [0.0, 19.0, 21.0]))
    assert keys[1] < keys[0] < keys[2]
    never = Priority(PriorityOptions(ageing_seconds=None))
    assert never.keys(arrays([2, 0], [0.0, 1e9])).tolist() == [2, 0]


def test_no_request_waits_for_ever_behind_better_ones(engine):
    clock = Clock()
    one = engine(clock=clock, policy=Priority(PriorityOptions(ageing_seconds=2)), max_num_seqs=1)
    one.add("humble", [1], 1, priority=3)
    for number in range(40):
        one.add(f"better{number}", [2], 1, priority=0)
        one.step()
        clock.now += 1
        if one.answers["humble"].reason:
            break
    assert 5 <= number <= 8
    one.run()


def test_priority_preempts_the_least_important_and_keeps_the_budget(engine):
    one = engine(policy=Priority(), runner={"num_pages": 12}, max_num_batched_tokens=16)
    for name, priority in (("low", 9), ("mid", 5), ("high", 0)):
        one.add(name, [priority] * 9, 20, priority=priority)
    ends = []
    while one.core.has_work():
        outputs = one.step()
        ends += [outputs.request_ids[f.row] for f in outputs.finished]
    assert one.core.stats.preemptions > 0
    assert ends[0] == "high"
    assert ends[-1] == "low"


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("when", [0, 1, 2, 4])
def test_a_pause_loses_and_repeats_no_token(engine, alone, depth, when):
    one = engine(loop_depth=depth, max_num_batched_tokens=7)
    for name in "ab":
        one.add(name, [ord(name)] * 9)
    for _ in range(when):
        one.step()
    one.core.pause()
    one.add("c", [99] * 9)
    for _ in range(4):
        one.step()
    plans = len(one.runner.plans)
    one.core.reset_prefix_cache()
    one.step()
    assert len(one.runner.plans) == plans
    one.core.resume()
    answers = one.run()
    for name, token in (("a", 97), ("b", 98), ("c", 99)):
        assert answers[name].tokens == alone([token] * 9).tokens


@pytest.mark.parametrize(
    "bad",
    [{"watermark": 1.0}, {"watermark": -0.1}, {"long_prefill_threshold": 0},
     {"long_prefill_threshold": "yes"}, {"max_num_active": 0}, {"max_queued_requests": 0},
     {"prefix_hash": "md5"}],
)  # fmt: skip
def test_a_setting_out_of_range_is_named(engine, bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        engine(**bad)
