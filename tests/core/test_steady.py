"""Steps that equal the one before bring what the general path would bring, field by field."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace

import msgspec
import numpy as np
import pytest

from framework.contracts.kv_cache_spec import (
    ChunkedLocalSpec,
    FullAttentionSpec,
    MambaSpec,
    SlidingWindowSpec,
)
from framework.core.fair_queueing import FairQueueing
from framework.core.policies import Priority
from framework.core.slots import SlotTable
from framework.errors import EngineDeadError
from framework.testing import by_fingerprint, fingerprint, from_outputs

HEADS = {"num_kv_heads": 1, "head_size": 1, "head_size_v": 1, "dtype": "float32"}
FULL, WINDOW = FullAttentionSpec(**HEADS), SlidingWindowSpec(**HEADS, window=6)
MODELS = {
    "full": {"a": FULL},
    "window": {"a": WINDOW},
    "hybrid": {"a": FULL, "b": WINDOW, "c": ChunkedLocalSpec(**HEADS, chunk=8)},
    "state": {"a": FULL, "b": MambaSpec(shapes=((4,),), dtypes=("float32",))},
}


def same(one, other):
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, msgspec.Struct) or is_dataclass(one):
        names = getattr(one, "__struct_fields__", None) or [field.name for field in fields(one)]
        return all(same(getattr(one, name), getattr(other, name)) for name in names)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def truth(prompt, count):
    before, tokens, script = 1, [], by_fingerprint(1000)
    for token in prompt:
        before = fingerprint(before, token)
    for _ in range(count):
        tokens.append(script(None, 0, before))
        before = fingerprint(before, tokens[-1])
    return tokens


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Pair:
    """An engine, and one that never takes the short path; both are told the same."""

    def __init__(self, engine, **config):
        self.clock, runner = Clock(), config.pop("runner", {})
        policy = config.pop("policy", Priority)
        self.both = [
            engine(policy=policy(), runner=dict(runner), clock=self.clock, **config)
            for _ in range(2)
        ]
        self.one, self.other = self.both
        self.other.core._scheduler._may_be_steady = False
        self.steady = self.seen = 0

    def add(self, *args, **more):
        for each in self.both:
            each.add(*args, **more)

    def core(self, name, *args):
        first, second = [getattr(each.core, name)(*args) for each in self.both]
        assert first == second
        return first

    def step(self, count=1):
        for _ in range(count):
            outputs = [each.step() for each in self.both]
            assert same(*outputs)
            assert self.one.runner.steps == self.other.runner.steps
            assert same(*(each.runner.plans[self.seen :] for each in self.both))
            self.seen = self.one.runner.steps
            assert outputs[0].stats == self.one.core.stats or self.one.core._flight
            self.steady += self.one.core._state.steady is not None
        return outputs[0]

    def run(self):
        while self.one.core.has_work():
            self.step()
        assert self.one.answers == self.other.answers
        assert self.one.run() is not None


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("unit", [1, 4])
@pytest.mark.parametrize("model", sorted(MODELS))
def test_plans_and_outputs_equal_those_of_the_general_path(engine, model, unit, depth):
    """Ends of pages at different steps, stops, arrivals, an abort, an error, lost pages."""
    fails = {(24, 0): "boom"}
    two = Pair(
        engine,
        loop_depth=depth,
        runner={
            "layers": MODELS[model],
            "num_pages": 400,
            "page_tokens": unit,
            "depth": depth,
            "fail_rows": fails,
            "lose_pages": {50: [3, 5, 8]},
        },
        enable_kv_events=True,
    )
    for number in range(4):
        stop = truth([number] * (3 + 2 * number), 30)[25 + number]
        two.add(str(number), [number] * (3 + 2 * number), 30 + 5 * number, stop_ids=(stop,))
    two.step(18)
    two.add("one", [9], 1)
    two.step(9)
    two.core("abort", ["3"])
    two.step(2)
    two.add("long", [7] * 11, 40)
    two.step(12)
    two.core("reset_prefix_cache")
    two.step(4)
    two.core("pause")
    two.step(3)
    two.core("resume")
    two.run()
    assert two.steady > 20
    assert two.core("take_kv_events") is not None
    assert two.one.answers["0"].reason == "error"
    answer = two.one.answers["1"]
    assert (answer.reason, answer.tokens) == ("stop", truth([1] * 5, 27))
    assert two.one.answers["long"].tokens == truth([7] * 11, 40)


@pytest.mark.parametrize("token", [0, 7])
def test_whichever_token_ends_a_request_ends_it_in_a_run_of_equal_steps(engine, token):
    """No token is taken for none."""
    outputs = {"a": [1] * 9 + [token] + [1] * 9}
    one = engine(runner={"script": from_outputs(outputs)})
    one.add("a", [1] * 3, 19, stop_ids=(token,))
    answer = one.run()["a"]
    assert (answer.reason, answer.stop, answer.tokens) == ("stop", token, outputs["a"][:10])


@pytest.mark.parametrize("depth", [1, 2])
def test_one_with_thousands_of_stop_ids_makes_no_step_of_others_dearer(engine, depth):
    """And nobody else ends by these, nor who has the slot after it."""
    outputs = {"many": [1] * 5 + [900] + [1] * 9, "next": [900] * 15, "other": [900] * 15}
    one = engine(runner={"script": from_outputs(outputs)}, loop_depth=depth, max_num_seqs=2)
    table = one.core._state.slots
    bytes_before = table.stop_ids.nbytes
    one.add("many", [1] * 3, 15, stop_ids=tuple(range(500, 1000)))
    one.add("other", [2] * 3, 15, stop_ids=(7,))
    one.add("next", [3] * 3, 15)
    answers = one.run()
    assert (answers["many"].reason, answers["many"].stop) == ("stop", 900)
    assert answers["many"].tokens == outputs["many"][:6]
    assert answers["next"].reason == answers["other"].reason == "length"
    assert table.stop_ids.nbytes == bytes_before
    assert not table.many_stop_ids


def test_only_who_has_many_stop_ids_is_looked_at_for_them():
    table, looked = SlotTable(8, 4), []

    class Noting(dict):
        def __getitem__(self, slot):
            looked.append(slot)
            return super().__getitem__(slot)

        def get(self, slot, default=None):
            looked.append(slot)
            return super().get(slot, default)

    table.many_stop_ids = Noting()
    for slot, ids in enumerate([(7,), tuple(range(5, 15)), (), (9,)]):
        table._set_stop_ids(slot, ids)
    slots, tokens = np.arange(4), np.array([9, 9, 9, 9], np.int32)
    assert table.stops(slots, tokens).tolist() == [False, True, False, True]
    assert looked == [1]


@pytest.mark.parametrize("depth", [1, 2])
def test_pages_run_out_in_a_run_of_equal_steps(engine, depth):
    two = Pair(engine, loop_depth=depth, runner={"num_pages": 14})
    for number in range(3):
        two.add(str(number), [number] * 3, 40, priority=-number)
    two.run()
    assert two.steady > 20
    assert two.one.core.stats.preemptions > 0
    for number in range(3):
        assert two.one.answers[str(number)].tokens == truth([number] * 3, 40)


def test_a_plan_owns_what_it_tells(engine):
    """Plans share arrays with each other; none of those may change later."""
    one = engine()
    one.add("a", [1] * 3, 20)
    kept = []
    while one.core.has_work():
        one.step()
        kept.append((one.runner.plans[-1].computed, one.runner.plans[-1].computed.copy()))
    assert all(np.array_equal(now, then) for now, then in kept)
    plan = one.runner.plans[-2]
    for array in (plan.num_new, plan.wants_logits, plan.draft_counts):
        assert not array.flags.writeable


@pytest.mark.parametrize("depth", [1, 2])
def test_a_pin_shows_at_once_in_what_steps_tell(engine, depth):
    two = Pair(engine, loop_depth=depth, runner={"page_tokens": 16, "max_model_len": 100})
    two.add("before", [5] * 33, 1)
    two.run()
    two.add("a", [1] * 17, 14)
    two.step(4)
    used = two.step().stats.pages_used
    assert two.one.core._state.steady is not None
    key, tokens = two.core("pin_prefix", [5] * 33)
    stats = two.step().stats
    assert (tokens, stats.pages_pinned, stats.pages_used) == (32, 2, used + 2)
    assert two.one.core._state.steady is not None
    two.core("unpin_prefix", key)
    stats = two.step().stats
    assert (stats.pages_pinned, stats.pages_used) == (0, used)


def test_a_page_behind_the_window_is_told_free_in_the_step_that_frees_it(engine):
    two = Pair(engine, runner={"layers": {"a": WINDOW}})
    two.add("a", [1], 40)
    used = []
    for _ in range(30):
        used.append(two.step().stats.pages_used)
    assert max(used) <= 3
    assert used[-8:].count(2) == 2  # once in four steps, when a page is full


@pytest.mark.parametrize("policy", [Priority, FairQueueing])
def test_only_policies_that_need_not_be_asked_are_not_asked(engine, policy):
    two = Pair(engine, policy=policy)
    two.add("a", [1], 20)
    two.run()
    assert (two.steady > 0) == (policy is Priority)


def test_a_deadline_that_passes_while_a_request_runs_is_met_on_either_path(engine):
    """A preemption afterwards, here by lost pages, does not make it late."""
    two = Pair(engine, queue_timeout=5.0)
    two.add("a", [1] * 3, 20, deadline=5.0)
    two.step(5)
    two.clock.now = 6.0
    two.step(2)
    pages = two.one.core._state.kv.tables[0, 0, :1].tolist()
    for each in two.both:
        each.runner.lose_pages = {len(each.runner.plans) + 1: pages}
    two.step()
    assert two.one.core.stats.preemptions == 1
    two.run()
    assert two.one.answers["a"].tokens == truth([1] * 3, 20)


def test_who_comes_during_a_run_of_equal_steps_is_not_late(engine):
    two = Pair(engine, max_num_seqs=1, queue_timeout=3.0)
    two.add("a", [1], 30)
    two.step(5)
    assert two.one.core._state.steady is not None
    two.add("late", [2], 3)
    two.step(2)
    two.clock.now = 4.0
    outputs = two.step()
    assert [outputs.request_ids[end.row] for end in outputs.finished] == ["late"]
    two.run()
    assert two.one.answers["a"].tokens == truth([1], 30)


def test_tokens_belong_to_the_rows_that_the_offsets_give_them_to(engine):
    """As many tokens as rows, but two of one and none of the other: a fault of the runner."""
    one = engine()
    for name in "ab":
        one.add(name, [ord(name)], 20)
    for _ in range(4):
        one.step()
    state, finish = one.core._state, one.runner.finish
    assert state.steady is not None

    def strange(ticket, late):
        return replace(finish(ticket, late), token_offsets=np.array([0, 2, 2], np.int32))

    one.runner.finish = strange
    with pytest.raises(EngineDeadError, match=r"(?s)ScriptedRunner gave .* 2 tokens in row 0"):
        one.core.step()


def test_a_token_that_is_wanted_and_does_not_come_is_a_fault_of_the_runner(engine):
    """Else the request would go on without it, and wait for its last one for ever."""
    one = engine()
    one.add("a", [1], 20)
    for _ in range(4):
        one.step()
    finish = one.runner.finish

    def silent(ticket, late):
        none = np.zeros(2, np.int32)
        return replace(finish(ticket, late), token_ids=none[:0], token_offsets=none)

    one.runner.finish = silent
    with pytest.raises(EngineDeadError, match=r"(?s)ScriptedRunner gave .* 0 tokens in row 0"):
        one.core.step()


@pytest.mark.parametrize("depth", [1, 2])
def test_who_comes_and_is_aborted_between_two_equal_steps_is_told_with_the_next(engine, depth):
    two = Pair(engine, loop_depth=depth)
    two.add("a", [1], 30)
    two.step(5)
    two.add("b", [2], 3)
    two.core("abort", ["b"])
    assert two.one.core._state.steady is not None
    assert two.step().request_ids == ("a", "b")
    two.run()
    assert two.one.answers["b"].reason == "abort"


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_who_has_all_its_tokens_planned_is_in_no_step_after_that(engine, depth):
    """With steps in flight its end is known before its last token."""
    two = Pair(engine, loop_depth=depth, runner={"depth": depth})
    two.add("short", [1] * 3, 12)
    two.add("long", [2] * 3, 25)
    two.run()
    assert two.steady > 10
    for number in (0, 1):
        rows = [p.num_new[p.slots == number] for p in two.one.runner.plans]
        assert sum(int(row.sum()) for row in rows) == 3 + (12, 25)[number] - 1


@pytest.mark.parametrize("lookahead", [0, 2])
@pytest.mark.parametrize("model", sorted(MODELS.keys() - {"state"}))
def test_steps_without_drafts_equal_those_of_the_general_path_where_there_may_be_some(
    engine, model, lookahead
):
    """Now and then a request gets drafts, right ones and wrong ones."""

    def draft(request, tokens, wanted):
        if (len(tokens) + request.num_prompt) % 9:
            return []
        right = truth(tokens, wanted)
        return right if len(tokens) % 2 else [*right[:1], *[0] * (wanted - 1)]

    two = Pair(
        engine,
        max_drafts=3,
        lookahead=lookahead,
        runner={
            "layers": MODELS[model],
            "num_pages": 400,
            "page_tokens": 4,
            "drafter": draft,
            "fail_rows": {(30, 1): "boom"},
        },
    )
    for number in range(3):
        two.add(str(number), [number] * (3 + 2 * number), 60)
    two.step(20)
    two.add("late", [9] * 3, 30)
    two.run()
    assert (two.steady > 10) == (lookahead == 0)
    assert sum(two.one.core.stats.accepted) > 0
    assert two.one.core.stats.drafts > sum(two.one.core.stats.accepted)


def test_room_ahead_is_looked_for_in_every_step_without_drafts_too(engine):
    two = Pair(engine, lookahead=3, runner={"num_pages": 100, "page_tokens": 4})
    two.add("a", [1] * 3, 40)
    rooms = []
    for _ in range(30):
        two.step(1)
        rooms.append([int(each.core._state.kv.room[0]) for each in two.both])
    assert all(one == other for one, other in rooms)
    two.run()
