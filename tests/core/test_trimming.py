"""Pages that are read no more are given back once, and told once."""

from __future__ import annotations

import numpy as np
import pytest

from framework.contracts.kv_cache_spec import SlidingWindowSpec
from framework.core.kv.managers import SlidingWindowManager

WINDOW = SlidingWindowSpec(num_kv_heads=1, head_size=1, head_size_v=1, dtype="float32", window=6)


def windowed(engine, **more):
    return engine(
        runner={
            "layers": {"w": WINDOW},
            "num_pages": 60,
            "page_tokens": 4,
            "max_model_len": 80,
        },
        **more,
    )


@pytest.mark.parametrize("depth", [1, 2])
def test_pages_that_a_hit_left_out_are_not_given_back_again(engine, depth):
    """Of eight pages that are hit the window reads the last two; the plan begins with them, and
    each entry that becomes the null page later is told by one plan only."""
    one = windowed(engine, loop_depth=depth)
    one.add("before", [1] * 33, 1)
    one.run()
    seen = len(one.runner.plans)
    one.add("a", [1] * 33, 20)
    assert one.run()["a"].cached == 32
    told = []
    for plan in one.runner.plans[seen:]:
        update, at = plan.pages[0], 0
        for start, count, replace in zip(update.starts, update.counts, update.replace, strict=True):
            ids = update.ids[at : at + count]
            at += count
            if replace:
                assert np.flatnonzero(ids == 0).tolist() == list(range(6))
            else:
                told += [start + k for k in np.flatnonzero(ids == 0).tolist()]
    assert told == list(range(6, told[-1] + 1))
    assert len(told) >= 4


def test_a_manager_that_fails_for_one_request_does_not_keep_the_pages_of_others(engine):
    class Manager(SlidingWindowManager):
        fails = 0

        def droppable(self, computed, page_tokens, spec):
            self.fails -= 1
            if self.fails >= 0:
                raise RuntimeError("no")
            return super().droppable(computed, page_tokens, spec)

    manager = Manager()
    one = windowed(engine, managers=[manager])
    one.add("a", [1] * 8, 9)
    one.add("b", [2] * 8, 9)
    one.step()
    one.step()
    kv, slots = one.core._state.kv, one.core._state.slots
    confirmed = slots.confirmed[:2]
    assert confirmed.tolist() == [9, 9]
    used = one.core.stats.pages_used
    manager.fails = 1
    kv.trimming.trim_all(np.array([0, 1]), confirmed)
    assert kv.tables[0, :2, 0].astype(bool).tolist() == [True, False]
    assert one.core.stats.pages_used == used - 1
    kv.trimming.trim_all(np.array([0, 1]), confirmed)
    assert one.core.stats.pages_used == used - 2
    one.run()
