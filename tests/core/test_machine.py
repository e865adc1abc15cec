"""A state machine over the whole core: whatever happens in whatever order, counts are exact
after every step, every request ends, and what it gets is what it would get alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from framework.contracts.kv_cache_spec import FullAttentionSpec, MambaSpec, SlidingWindowSpec
from framework.contracts.participant import External, Hold, Refuse, SchedulerParticipant
from framework.contracts.scheduling_policy import SchedulingPolicy
from framework.core.fair_queueing import FairQueueing
from framework.core.kv.prefix import key_of
from framework.core.policies import FirstComeFirstServed, Priority
from framework.testing import expected_tokens
from framework.testing.harness import Harness

VOCABULARY = 50
HEADS = {"num_kv_heads": 1, "head_size": 1, "head_size_v": 1, "dtype": "float32"}
MODELS = {
    "full": {"full": FullAttentionSpec(**HEADS)},
    "hybrid": {
        "full": FullAttentionSpec(**HEADS),
        "a": SlidingWindowSpec(**HEADS, window=7),
        "b": SlidingWindowSpec(**HEADS, window=7),
    },
    "state": {
        "full": FullAttentionSpec(**HEADS),
        "state": MambaSpec(shapes=((4,),), dtypes=("float32",)),
    },
}


class ShortestSoFar(SchedulingPolicy):
    """Whoever gets ahead is the next to be preempted."""

    def keys(self, requests):
        return requests.known.astype(np.float64)


POLICIES = (FirstComeFirstServed, Priority, FairQueueing, ShortestSoFar)


def truth(prompt, count):
    return expected_tokens(prompt, count, VOCABULARY)


class LateConnector(SchedulerParticipant):
    """Brings up to `offered` tokens after some looks, fewer than offered, or fails."""

    def __init__(self):
        super().__init__()
        self.runner, self.loads, self.entered_by = None, {}, {}

    def external_prefix(self, request, local_hit):
        offered, looks, brings = (int(x) for x in request.input.extras["late"].split(b","))
        offered = min(offered, len(request.tokens) - 1) - local_hit
        self.loads.pop(request.id, None)
        if offered <= 0:
            return External(0)
        load = self.loads[request.id] = [looks]

        def arrived():
            load[0] -= 1
            if load[0] > 0 or not self._entered(request):
                return None
            del self.loads[request.id]
            if brings < 0:
                return Refuse("lost")
            self.runner.fill(request.id, local_hit, local_hit + min(brings, offered))
            return min(brings, offered)

        return External(offered, arrived)

    def attach(self, plan, requests):
        for request in plan.admitted:
            self.entered_by[request.request_id] = plan.step_id

    def _entered(self, request):
        """The runner has its pages; those of the time before a preemption are another's."""
        done = self.runner.steps - len(self.runner._waiting)
        return done >= self.entered_by[request.id]

    def release(self, request):
        load = self.loads.pop(request.id, None)
        return None if load is None else Hold(lambda: self._over(load))

    @staticmethod
    def _over(load):
        load[0] -= 1
        return load[0] <= 0


class Machine(RuleBasedStateMachine):
    @initialize(
        model=st.sampled_from(sorted(MODELS)),
        depth=st.sampled_from([1, 2]),
        budget=st.integers(4, 40),
        pages=st.integers(30, 70),
        slots=st.integers(1, 6),
        drafts=st.sampled_from([0, 3]),
        policy=st.sampled_from(POLICIES),
        threshold=st.sampled_from([None, "auto", 3]),
        whole=st.booleans(),
        active=st.sampled_from([None, 2]),
    )
    def start(self, model, depth, budget, pages, slots, drafts, policy, threshold, whole, active):
        late = LateConnector()
        self.num_drafts = 0 if model == "state" else drafts
        self.one = Harness(
            policy=policy(),
            participants={"late": late},
            runner={
                "layers": MODELS[model],
                "num_pages": pages,
                "vocab_size": VOCABULARY,
                "drafter": self._draft,
                "max_model_len": 45,
            },
            loop_depth=depth,
            max_num_batched_tokens=budget,
            max_num_seqs=slots,
            max_num_active=active,
            max_drafts=self.num_drafts,
            long_prefill_threshold=threshold,
            whole_sequence_must_fit=whole,
            enable_kv_events=True,
        )
        late.runner = self.one.runner
        self.late = late
        self.asked = {}
        self.names = {}
        self.quality = 2

    def _draft(self, request, tokens, wanted):
        """Drafts of changing length, of which the first `quality` are right."""
        good = truth(tokens, wanted)
        return [t if k < self.quality else t + 1 for k, t in enumerate(good)][: self.quality + 1]

    @rule(
        kind=st.integers(0, 2),
        length=st.integers(1, 34),
        count=st.integers(1, 9),
        priority=st.integers(-2, 2),
        late=st.one_of(
            st.none(), st.tuples(st.integers(1, 20), st.integers(1, 4), st.integers(-1, 20))
        ),
        salt=st.sampled_from([None, "s"]),
    )
    def add(self, kind, length, count, priority, late, salt):
        name = str(len(self.asked))
        prompt = [kind] * length + [len(self.asked) % VOCABULARY] * (length % 3 == 0)
        if len(prompt) + count > self.one.core.max_model_len:
            return
        extras = {} if late is None else {"late": b"%d,%d,%d" % late}
        self.asked[name] = (prompt, count, late)
        self.one.add(
            name, prompt, count, priority=priority, tenant=str(kind), salt=salt, extras=extras
        )

    @rule(steps=st.integers(1, 6))
    def step(self, steps):
        for _ in range(steps):
            self.one.step()
        self._check_events()

    def _check_events(self):
        """Events replayed give the names that the cache holds."""
        for event in self.one.core.take_kv_events():
            key = key_of(event.name, event.group)
            if event.kind == "cleared":
                self.names.clear()
            elif event.kind == "stored":
                assert key not in self.names
                self.names[key] = event
            else:
                del self.names[key]
        assert set(self.names) == set(self.one.core._state.kv.pool._page_of)

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def abort(self, data):
        self.one.core.abort([data.draw(st.sampled_from(sorted(self.asked)))])
        self.one.core.check_integrity()

    @rule()
    def pause(self):
        self.one.core.pause()
        for _ in range(3):
            self.one.step()
        plans = len(self.one.runner.plans)
        self.one.step()
        assert len(self.one.runner.plans) == plans
        self.one.core.resume()

    @rule()
    def clear(self):
        self.one.core.reset_prefix_cache()
        self.one.core.check_integrity()

    @rule(quality=st.integers(0, 3))
    def change_drafts(self, quality):
        self.quality = quality

    @rule(pages=st.lists(st.integers(1, 29), min_size=1, max_size=4))
    def lose_pages(self, pages):
        there = [page for page in pages if page < self.one.core.cache_plan.num_pages]
        self.one.runner.lose_pages = {len(self.one.runner.plans) + 1: there}

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def pin(self, data):
        prompt = self.asked[data.draw(st.sampled_from(sorted(self.asked)))][0]
        try:
            key, _ = self.one.core.pin_prefix(prompt)
        except ValueError:
            return
        self.one.core.check_integrity()
        self.one.step()
        assert self.one.core.unpin_prefix(key)

    def teardown(self):
        if not hasattr(self, "one"):
            return
        answers = self.one.run()
        for _ in range(10):
            self.one.step()
        assert self.one.core.stats.pages_used == 0
        for name, (prompt, count, late) in self.asked.items():
            answer = answers[name]
            assert answer.tokens == truth(prompt, count)[: len(answer.tokens)]
            if answer.reason == "length":
                assert len(answer.tokens) == count
            elif answer.reason == "error":
                assert late is not None
                assert answer.error == "lost"
            else:
                assert answer.reason == "abort"


def run(examples, steps):
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_counts_are_exact_after_every_step_in_any_order_of_events():
    run(examples=25, steps=40)


@pytest.mark.long
def test_counts_are_exact_over_twenty_thousand_events():
    run(examples=250, steps=80)


def test_who_lacks_pages_does_not_lose_its_own_to_one_that_loads():
    """Each is offered more than comes, and more than the other leaves: whoever ran was preempted
    for the one that loaded, which lost its pages in turn as soon as it ran, and so for ever."""
    late = LateConnector()
    one = Harness(
        participants={"late": late},
        runner={
            "layers": MODELS["state"],
            "num_pages": 14,
            "vocab_size": VOCABULARY,
            "max_model_len": 60,
        },
        max_num_batched_tokens=3,
        max_num_seqs=2,
        loop_depth=2,
    )
    late.runner = one.runner
    one.add("a", [1] * 19, 6, extras={"late": b"36,3,2"})
    one.add("b", [2] * 18, 6, extras={"late": b"20,3,2"})
    answers = one.run(300)
    assert answers["a"].tokens == truth([1] * 19, 6)
    assert answers["b"].tokens == truth([2] * 18, 6)
    assert one.core.stats.preemptions <= 8


@settings(max_examples=25, deadline=None)
@given(
    budget=st.integers(1, 50),
    unit=st.sampled_from([1, 2, 3, 8, 16]),
    spare=st.integers(0, 40),
    depth=st.sampled_from([1, 2]),
    policy=st.sampled_from(POLICIES),
    model=st.sampled_from(sorted(MODELS)),
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=8),
)
def test_output_never_depends_on_budget_page_size_pool_depth_or_policy(
    budget, unit, spare, depth, policy, model, lengths
):
    layers = MODELS[model]
    one = Harness(
        policy=policy(),
        runner={
            "layers": layers,
            "page_tokens": unit,
            "num_pages": 2 + 3 * len(layers) * (-(-40 // unit) + 1) + spare,
            "vocab_size": VOCABULARY,
            "max_model_len": 40,
        },
        max_num_batched_tokens=budget,
        loop_depth=depth,
    )
    for number, length in enumerate(lengths):
        one.add(str(number), [number % 3] * length, 9, tenant=str(number % 2))
    for number, answer in enumerate(one.run().values()):
        assert answer.tokens == truth([number % 3] * lengths[number], 9)
