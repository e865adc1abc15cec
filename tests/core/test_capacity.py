"""How long a sequence may be where neither model nor operator says so: what the cache can hold."""

from __future__ import annotations

import pytest

from framework.contracts.kv_cache_spec import FullAttentionSpec, SlidingWindowSpec

HEADS = {"head_size": 1, "head_size_v": 1, "dtype": "float32"}
FULL = FullAttentionSpec(num_kv_heads=1, **HEADS)
WINDOW = SlidingWindowSpec(num_kv_heads=1, window=6, **HEADS)
WIDE = SlidingWindowSpec(num_kv_heads=4, window=6, **HEADS)


def longest(one, pages, most):
    """By trial of each length."""
    plan, step = one.core.cache_plan, one.config.max_num_batched_tokens

    def need(length):
        return sum(g.spec.max_pages(length, g.page_tokens, step) for g in plan.groups)

    return max(length for length in range(1, most + 1) if need(length) <= pages)


@pytest.mark.parametrize("layers", [{"f": FULL}, {"f": FULL, "w": WINDOW}, {"f": FULL, "w": WIDE}])
@pytest.mark.parametrize("pages", [9, 40])
def test_the_longest_sequence_is_the_longest_whose_pages_are_there(engine, layers, pages):
    one = engine(
        runner={"layers": layers, "num_pages": pages}, max_num_batched_tokens=4, loop_depth=1
    )
    found = one.core.max_model_len
    assert found == longest(one, pages - 1, 16 * pages)
    if pages == 40 and WIDE in layers.values():
        # Pages of the one layer hold four times the tokens of the other's, which needs few.
        assert [group.page_tokens for group in one.core.cache_plan.groups] == [16, 4]
        assert found > 40 * 4


def test_where_a_sequence_could_be_endless_it_is_as_long_as_all_pages(engine):
    one = engine(runner={"layers": {"w": WINDOW}, "num_pages": 9}, max_num_batched_tokens=4)
    assert one.core.max_model_len == 9 * 4
