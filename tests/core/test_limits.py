"""Limits of admission and of a step: threshold, watermark, whole sequences, queue, ageing."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from framework.contracts.messages import EngineInput
from framework.contracts.participant import External, SchedulerParticipant
from framework.contracts.sampling import SamplingParams
from framework.contracts.scheduling_policy import RequestArrays
from framework.core.policies import Priority, PriorityOptions
from framework.errors import ConfigError, InputError, OverloadedError


class Clock:
    """Stands still until it is set."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Held(SchedulerParticipant):
    """most: tokens of a request in a step."""

    most = 9

    def limit(self, request, start, tokens):
        return min(tokens, self.most)


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


def test_the_adaptive_share_counts_no_request_that_needs_one_token_only(engine):
    one = engine(max_num_batched_tokens=24, long_prefill_threshold="auto", max_num_seqs=3)
    for name in "ab":
        one.add(name, [ord(name)] * 3, 20)
    one.step()
    one.add("long", [1] * 60)
    one.step()
    assert one.runner.plans[-1].num_new.tolist() == [1, 1, 22]
    one.step()
    assert one.runner.plans[-1].num_new.tolist() == [1, 1, 22]
    one.run()


def test_the_adaptive_share_counts_no_request_for_which_there_is_no_slot(engine):
    one = engine(max_num_batched_tokens=24, long_prefill_threshold="auto", max_num_seqs=2)
    for name in "abcdef":
        one.add(name, [ord(name)] * 40)
    one.step()
    assert one.runner.plans[0].num_new.tolist() == [12, 12]
    one.step()
    assert one.runner.plans[1].num_new.tolist() == [12, 12]
    one.run()


def test_the_adaptive_share_is_no_less_than_a_page(engine):
    one = engine(max_num_batched_tokens=8, long_prefill_threshold="auto")
    for name in "abcd":
        one.add(name, [ord(name)] * 40)
    one.step()
    assert one.runner.plans[0].num_new.tolist() == [4, 4]


def test_no_more_are_active_when_more_run_because_a_participant_held_some(engine):
    one = engine(participants={"slow": (slow := Held())}, max_num_seqs=6, max_num_active=2)
    for name in "ab":
        one.add(name, [ord(name)], extras={"slow": b""})
    one.step()
    slow.most = 0
    one.add("c", [3], 20)
    one.step()
    slow.most = 9
    assert one.core.stats.running == 3
    one.step()
    assert one.runner.plans[-1].num_rows == 2
    one.run()


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


@pytest.mark.parametrize(("share", "running"), [(0.0, 1), (0.5, 0)])
def test_the_watermark_keeps_pages_free_beside_one_that_loads_too(engine, share, running):
    """4 of 20 pages fill from elsewhere, and the other needs 7, where 10 must stay free."""

    class Later(SchedulerParticipant):
        there = False

        def external_prefix(self, request, local_hit):
            return External(16, lambda: 0 if self.there else None)

    later = Later()
    one = engine(participants={"later": later}, runner={"num_pages": 21}, watermark=share)
    one.add("loads", [1] * 20, 2, extras={"later": b""})
    one.add("other", [2] * 27, 2)
    one.step()
    stats = one.core.stats
    assert (stats.loading, stats.running, stats.waiting) == (1, running, 1 - running)
    later.there = True
    one.run()


def test_a_deadline_ends_who_waits_for_its_pages_from_elsewhere(engine):
    class Never(SchedulerParticipant):
        def external_prefix(self, request, local_hit):
            return External(4, lambda: None)

    now = [0.0]
    one = engine(participants={"never": Never()}, clock=lambda: now[0])
    one.add("loads", [1] * 9, 2, extras={"never": b""}, deadline=5.0)
    one.step()
    one.step()
    assert (one.core.stats.loading, one.answers["loads"].reason) == (1, None)
    now[0] = 6.0
    answer = one.run()["loads"]
    assert (answer.reason, answer.timed_out, one.core.stats.loading) == ("error", True, 0)
    assert "deadline" in answer.error


def test_a_request_that_is_alone_may_use_what_the_watermark_keeps_free(engine):
    """15 of 20 pages, where 10 must stay free beside others: nobody would ever start it."""
    one = engine(runner={"num_pages": 21}, watermark=0.5)
    one.add("large", [1] * 56, 4)
    one.step()
    assert one.core.stats.running == 1
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


def test_a_whole_sequence_must_fit_beside_the_watermark_too(engine):
    one = engine(runner={"num_pages": 21}, watermark=0.5, whole_sequence_must_fit=True)
    for name in "abcd":
        one.add(name, [ord(name)] * 15, 1)
    one.step()
    assert one.core.stats.waiting == 2
    one.run()


def test_a_whole_sequence_must_fit_beside_what_one_that_loads_may_still_claim(engine):
    class Later(SchedulerParticipant):
        looks = 0

        def external_prefix(self, request, local_hit):
            return External(4, self.arrived)

        def arrived(self):
            self.looks += 1
            return None if self.looks < 4 else 0

    one = engine(
        participants={"later": Later()}, runner={"num_pages": 14}, whole_sequence_must_fit=True
    )
    one.add("loads", [1] * 5, 30, extras={"later": b""})
    one.add("other", [2] * 5, 30)
    one.run()
    assert one.core.stats.preemptions == 0


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


def test_a_queue_that_is_full_of_tokens_refuses_and_lets_a_longer_prompt_wait_alone(engine):
    one = engine(max_num_seqs=1, max_queued_tokens=6)
    one.add("runs", [1], 3)
    one.step()
    one.add("a", [2] * 4)
    with pytest.raises(OverloadedError, match="at most 6 tokens") as error:
        one.add("b", [3] * 3)
    assert error.value.retry_after > 0
    one.add("c", [4] * 2)
    one.core.abort(["a", "c"])
    one.add("long", [5] * 9)
    with pytest.raises(OverloadedError):
        one.add("d", [6])
    assert one.run()["long"].reason == "length"


def test_when_to_ask_again_is_estimated_from_how_often_a_place_became_free(engine):
    clock = Clock()
    one = engine(clock=clock, max_num_seqs=1, max_queued_requests=2)

    def refusal():
        with pytest.raises(OverloadedError) as error:
            one.add("more", [9])
        return error.value.retry_after

    number = 0
    while one.core.stats.waiting < 2:
        one.add(str(number), [1], 1)
        number += 1
    assert refusal() == 1.0  # nothing is known yet
    for _ in range(6):
        one.step()
        clock.now += 4
        one.add(str(number), [1], 1)
        number += 1
    assert refusal() == pytest.approx(4.0)
    clock.now += 100  # nobody left since
    assert refusal() > 16
    clock.now += 10**6
    assert refusal() == 60.0


def test_one_that_only_goes_on_makes_no_place_free(engine):
    """It was sent back to the line, into which nobody may come for it."""
    clock = Clock()
    one = engine(clock=clock, max_num_seqs=1, max_queued_requests=1)
    one.add("a", [1], 30)
    for _ in range(5):
        one.step()
        clock.now += 4
        one.core.weights_changed()
    one.step()
    one.add("b", [1])
    with pytest.raises(OverloadedError) as error:
        one.add("c", [1])
    assert error.value.retry_after == 1.0  # nothing is known yet


def test_a_place_that_becomes_free_at_once_is_asked_for_soon(engine):
    clock = Clock()
    one = engine(clock=clock, max_num_seqs=1, max_queued_requests=2)
    for number in range(9):
        one.add(str(number), [1], 1)
        one.step()
    one.core.pause()
    one.add("a", [1])
    one.add("b", [1])
    with pytest.raises(OverloadedError) as error:
        one.add("c", [1])
    assert error.value.retry_after == 0.1
    one.core.resume()
    one.run()


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
    assert answers["waits"].timed_out


@pytest.mark.parametrize(
    ("deadline", "reason"), [(5.0, "waited longer than 3.0 s"), (2.0, "the deadline passed")]
)
def test_of_two_limits_that_have_passed_the_earlier_one_is_told(engine, deadline, reason):
    clock = Clock()
    one = engine(clock=clock, max_num_seqs=1, queue_timeout=3.0)
    one.add("runs", [1], 9)
    one.step()
    one.add("waits", [1], 9, deadline=deadline)
    one.step()
    clock.now += 10
    answer = one.run()["waits"]
    assert (answer.reason, answer.timed_out) == ("error", True)
    assert reason in answer.error


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
    longest = Priority(PriorityOptions(ageing_seconds=1e9))
    assert np.isfinite(longest.keys(arrays([-(2**63), 2**63 - 1], [0.0, 0.0]))).all()
    with pytest.raises(ValueError, match="less than or equal"):
        PriorityOptions(ageing_seconds=1e300)


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
     {"prefix_hash": "md5"}, {"queue_timeout": float("nan")}, {"participant_timeout": -1},
     {"long_prefill_threshold": 4, "enable_chunked_prefill": False, "max_model_len": 40}],
)  # fmt: skip
def test_a_setting_out_of_range_is_named(engine, bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        engine(**bad)


class Slow(SchedulerParticipant):
    """most: tokens a step.  offers: tokens that exist elsewhere, and how many of them come."""

    attends_all = True

    def __init__(self, most=10**9, offers=None):
        super().__init__()
        self.most, self.offers, self.runner = most, offers, None

    def limit(self, request, start, tokens):
        self.most += 1
        return min(tokens, self.most)

    def external_prefix(self, request, local_hit):
        if self.offers is None or request.preempted:
            return External(0)
        offered, come = self.offers

        def arrived():
            if not self.runner.holds(request.id):
                return None
            self.runner.fill(request.id, 0, come)
            return come

        return External(offered, arrived)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("slow", [Slow(3), Slow(offers=(12, 5)), Slow(2, (12, 5))])
def test_without_chunked_prefill_a_prompt_is_computed_whole_or_not_at_all(
    engine, alone, depth, slow
):
    """Also under a participant's limit, and where pages from elsewhere did not all come."""
    slow = Slow(slow.most, slow.offers)
    one = engine(
        participants={"slow": slow},
        enable_chunked_prefill=False,
        max_model_len=40,
        max_num_batched_tokens=40,
        loop_depth=depth,
        enable_prefix_caching=False,
    )
    slow.runner = one.runner
    for number in range(5):
        one.add(str(number), [number] * 20, 6)
    answers = one.run()
    come = slow.offers[1] if slow.offers else 0
    for plan in one.runner.plans:
        assert set(plan.num_new[plan.computed < 20].tolist()) <= {20 - come}
    for number in range(5):
        assert answers[str(number)].tokens == alone([number] * 20, 6).tokens


def test_a_limit_that_never_allows_a_whole_prompt_ends_it_by_name(engine):
    class Ticking(Clock):
        def __call__(self):
            self.now += 1
            return self.now

    slow = SchedulerParticipant()
    slow.limit = lambda request, start, tokens: 5
    one = engine(
        participants={"slow": slow},
        clock=Ticking(),
        enable_chunked_prefill=False,
        max_model_len=40,
        max_num_batched_tokens=40,
    )
    one.add("a", [1] * 9, extras={"slow": b""})
    error = one.run()["a"].error
    assert "participant 'slow'" in error
    assert "limit answered 5 of 9 tokens, of a prompt that may not be cut" in error


BAD = [
    {"deadline": float("nan")},
    {"deadline": float("inf")},
    {"deadline": "soon"},
    {"deadline": 10**400},
    {"priority": 2**70},
    {"priority": 0.5},
    {"stop_ids": (2**40,)},
    {"stop_ids": (-7,)},
    {"encoder_tokens": -1},
    {"tenant": None},
    {"salt": 5},
    {"adapter": "mine"},
    {"adapter": -1},
    {"adapter": 10**5000},
    {"extras": ["grammar"]},
    {"extras": {"grammar": "text"}},
    {"extras": {5: b""}},
]


@pytest.mark.parametrize("bad", BAD)
def test_a_value_that_the_core_cannot_hold_is_refused_at_the_door(engine, bad):
    one = engine(max_num_seqs=1)
    one.add("good", [1], 3, deadline=-1.0)
    with pytest.raises(InputError, match=next(iter(bad))) as error:
        one.add("bad", [1], **bad)
    assert error.value.parameter == next(iter(bad))
    one.add("next", [1], 3, deadline=5.0)
    assert one.run()["next"].reason == "length"


BAD_ENTRIES = [
    ("request_id", ["a"]),
    ("sampling", None),
    ("sampling", {"temperature": 0}),
    ("pooling", "mean"),
    ("stop_ids", None),
    ("stop_ids", b"x"),
    ("stop_ids", {}),
    ("bad_words", 7),
    ("bad_words", (7,)),
    ("bad_words", (("word",),)),
    ("priority", True),
    ("encoder_tokens", False),
    ("deadline", True),
    ("adapter", True),
    ("payloads", [("image", "a")]),
]


@pytest.mark.parametrize(("name", "value"), BAD_ENTRIES)
def test_what_is_not_of_its_type_is_refused_and_stops_nobody(engine, name, value):
    one = engine()
    one.add("good", [1], 3)
    entry = EngineInput(
        request_id="bad",
        tokens=np.array([1, 2], np.int32),
        sampling=SamplingParams(),
        seed=0,
        max_total=2,
    )
    with pytest.raises(InputError, match=name) as error:
        one.core.add(replace(entry, **{name: value}))
    assert error.value.parameter == name
    assert one.run()["good"].reason == "length"


@pytest.mark.parametrize(
    "tokens", [[1, 2], (1,), np.array([1, 2]), np.array([[1, 2]], np.int32), np.array([1.0])]
)
def test_a_prompt_is_an_array_of_int32_and_of_one_dimension(engine, tokens):
    one = engine()
    entry = EngineInput(
        request_id="bad", tokens=tokens, sampling=SamplingParams(), seed=0, max_total=9
    )
    with pytest.raises(InputError, match="prompt of the request is invalid") as error:
        one.core.add(entry)
    assert error.value.parameter == "prompt"


@pytest.mark.parametrize("seed", [-1, 2**64, 0.5, None])
def test_a_seed_that_has_no_place_in_64_bits_is_refused_at_the_door(engine, seed):
    one = engine()
    entry = EngineInput(
        request_id="bad",
        tokens=np.array([1], np.int32),
        sampling=SamplingParams(),
        seed=seed,
        max_total=4,
    )
    with pytest.raises(InputError, match="seed") as error:
        one.core.add(entry)
    assert error.value.parameter == "seed"
    one.core.add(replace(entry, seed=2**64 - 1))


@pytest.mark.parametrize(("pages", "asked"), [(1, None), (8, 1000)])
def test_a_cache_that_is_too_small_names_the_options_that_make_it_larger(engine, pages, asked):
    with pytest.raises(ConfigError, match=r"mend: .*kv_cache_memory_bytes \(num_pages"):
        engine(runner={"num_pages": pages}, max_model_len=asked)
