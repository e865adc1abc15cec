"""Equal steps go on while others wait for whom there is no room, and nobody can tell."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from framework.contracts.kv_cache_spec import FullAttentionSpec, SlidingWindowSpec
from framework.core.policies import FirstComeFirstServed, Priority
from tests.core.conftest import Harness
from tests.core.test_steady import Pair, truth

HEADS = {"num_kv_heads": 1, "head_size": 1, "head_size_v": 1, "dtype": "float32"}
FULL, WINDOW = FullAttentionSpec(**HEADS), SlidingWindowSpec(**HEADS, window=6)
LAYERS = {"full": {"a": FULL}, "window": {"a": WINDOW}, "both": {"a": FULL, "b": WINDOW}}

EVENTS = st.one_of(
    st.tuples(
        st.just("add"),
        st.integers(0, 2),  # whose beginning is shared
        st.integers(1, 20),
        st.integers(1, 25),
        st.sampled_from([None, None, 2.5, 9.0]),
        st.integers(-1, 1),
    ),
    st.tuples(st.just("step"), st.integers(1, 12)),
    st.tuples(st.just("wait"), st.floats(0.1, 5)),
    st.tuples(st.just("abort"), st.integers(0, 30)),
    st.tuples(st.just("lose"), st.integers(1, 12)),
    st.tuples(st.just("pin"), st.integers(0, 2)),
    st.tuples(st.sampled_from(["reset_prefix_cache", "weights_changed"])),
)


class Story:
    """Tells a pair of engines the same."""

    def __init__(self, pair):
        self.pair, self.count, self.pins = pair, 0, []

    def tell(self, kind, *args):
        getattr(self, kind, lambda: self.pair.core(kind))(*args)

    def add(self, family, length, output, deadline, priority):
        prompt = [family] * length + [self.count] * (length % 2)
        self.pair.add(str(self.count), prompt, output, deadline=deadline, priority=priority)
        self.count += 1

    def step(self, count):
        self.pair.step(count)

    def wait(self, seconds):
        self.pair.clock.now += seconds

    def abort(self, number):
        self.pair.core("abort", [str(number)])

    def lose(self, page):
        page %= self.pair.one.core.cache_plan.num_pages - 1
        page += 1
        for each in self.pair.both:
            each.runner.lose_pages = {each.runner.steps + 1: [page]}

    def pin(self, family):
        if self.pins:
            self.pair.core("unpin_prefix", self.pins.pop())
        else:
            try:
                self.pins.append(self.pair.core("pin_prefix", [family] * 8)[0])
            except ValueError:
                with pytest.raises(ValueError, match="too long"):
                    self.pair.other.core.pin_prefix([family] * 8)

    def end(self):
        while self.pins:
            self.pair.core("unpin_prefix", self.pins.pop())
        self.pair.run()


def check(events, *, slots, pages, unit, depth, layers, **config):
    pair = Pair(
        Harness,
        max_num_seqs=slots,
        loop_depth=depth,
        runner={
            "layers": LAYERS[layers],
            "num_pages": pages * len(LAYERS[layers]),
            "page_tokens": unit,
            "max_model_len": 46,
            "script": lambda request, position, before: position % 50,
        },
        **config,
    )
    story = Story(pair)
    for event in events:
        story.tell(*event)
    story.end()
    return pair


SETTINGS = {
    "events": st.lists(EVENTS, min_size=5, max_size=40),
    "slots": st.integers(1, 5),
    "pages": st.integers(14, 40),
    "unit": st.sampled_from([4, 8]),
    "depth": st.sampled_from([1, 2]),
    "layers": st.sampled_from(sorted(LAYERS)),
    "policy": st.sampled_from([FirstComeFirstServed, Priority]),
    "max_num_active": st.sampled_from([None, None, 2]),
    "max_num_batched_tokens": st.sampled_from([2, 5, 100]),
    "watermark": st.sampled_from([0.0, 0.3]),
    "whole_sequence_must_fit": st.booleans(),
    "queue_timeout": st.sampled_from([None, 6.0]),
    "long_prefill_threshold": st.sampled_from([None, "auto"]),
}
QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=60, **QUIET)
@given(**SETTINGS)
def test_plans_and_outputs_are_those_of_the_general_path_whoever_waits(**drawn):
    check(**drawn)


@pytest.mark.long
@settings(max_examples=3000, **QUIET)
@given(**SETTINGS)
def test_plans_and_outputs_are_those_of_the_general_path_in_thousands_of_stories(**drawn):
    check(**drawn)


@pytest.mark.parametrize("depth", [1, 2])
def test_steps_are_equal_while_all_slots_are_taken(engine, depth):
    two = Pair(engine, max_num_seqs=2, loop_depth=depth)
    for number in range(6):
        two.add(str(number), [number] * 3, 30)
    two.step(20)
    assert two.steady > 12
    assert two.one.core.stats.waiting == 4
    two.add("more", [7], 3)
    two.step(6)
    assert two.steady > 16
    two.core("abort", ["3"])
    two.run()
    for number in (0, 1, 2, 4, 5):
        assert two.one.answers[str(number)].tokens == truth([number] * 3, 30)


@pytest.mark.parametrize("depth", [1, 2])
def test_steps_are_equal_while_pages_are_lacking_for_the_first_in_line(engine, depth):
    """Until a page is taken, named or given back: then the line is looked at again."""
    two = Pair(engine, loop_depth=depth, runner={"page_tokens": 16, "num_pages": 5})
    two.add("runs", [1] * 3, 60)
    two.step(3)
    two.add("waits", [2] * 60, 2)
    two.step(9)
    assert two.one.core.stats.waiting == 1
    assert two.steady > 6
    two.run()
    assert two.one.answers["waits"].tokens == truth([2] * 60, 2)


@pytest.mark.parametrize("layers", ["full", "both"])
@pytest.mark.parametrize("steps", [5, 6])
def test_a_page_that_has_got_its_name_is_hit_by_the_first_in_line_at_once(engine, steps, layers):
    """With two steps in flight no page is taken in the step after: only the name is new."""
    two = Pair(
        engine,
        loop_depth=2,
        runner={
            "layers": LAYERS[layers],
            "num_pages": 1 + 11 * len(LAYERS[layers]),
            "script": lambda request, position, before: position,
            "max_model_len": 44,
        },
    )
    two.add("runs", [0, 1, 2], 39)
    two.step(steps)
    two.add("waits", list(range(40)), 2)
    two.run()
    assert two.one.answers["waits"].cached > 0


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("pages", range(19, 24))
def test_who_fits_once_the_rows_have_taken_their_pages_starts_in_that_step(engine, pages, depth):
    """What it would have hit is taken, so that less of it must be held at once."""
    two = Pair(
        engine,
        loop_depth=depth,
        max_num_batched_tokens=4,
        max_num_seqs=2,
        runner={"layers": LAYERS["both"], "num_pages": pages, "max_model_len": 60},
    )
    two.add("runs", [2] * 3, 40)
    two.add("before", [1] * 35, 1)
    while two.one.answers["before"].reason is None:
        two.step()
    two.add("waits", [1] * 39, 4)
    two.run()


def test_who_waits_too_long_ends_in_the_same_step(engine):
    two = Pair(engine, max_num_seqs=1, queue_timeout=3.0)
    two.add("runs", [1], 40)
    two.add("waits", [2], 3)
    two.add("hurries", [3], 3, deadline=1.0)
    two.step(6)
    assert two.one.core._state.steady is not None
    two.clock.now = 2.0
    outputs = two.step()
    assert [outputs.request_ids[end.row] for end in outputs.finished] == ["hurries"]
    two.step(3)
    assert two.one.core._state.steady is not None
    two.clock.now = 4.0
    outputs = two.step()
    assert [outputs.request_ids[end.row] for end in outputs.finished] == ["waits"]
    two.run()


@pytest.mark.parametrize("limit", ["max_num_active", "max_num_batched_tokens"])
@pytest.mark.parametrize("depth", [1, 2])
def test_a_step_that_is_full_is_repeated_though_a_slot_is_free(engine, limit, depth):
    """Whoever waits is not looked at in each step."""
    one = engine(loop_depth=depth, max_num_seqs=4, **{limit: 2})
    for name in "abc":
        one.add(name, [ord(name)], 20)
    for _ in range(6):
        one.step()
    steady = one.core._state.steady
    assert steady is not None
    for _ in range(5):
        one.step()
    assert one.core._state.steady is steady
    assert (one.core.stats.running, one.core.stats.waiting) == (2, 1)
    one.run()
