"""Page tables, whole-page operations and the arrays of a step."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from framework.contracts.attention_backend import AttentionParams
from framework.contracts.kv_cache_spec import FullAttentionSpec
from framework.contracts.model import AttentionLayer
from framework.contracts.step import CacheGroup, CachePlan, KvOp, PageUpdates
from framework.errors import ConfigError
from framework_sdpa.backend import SdpaBackend
from framework_torch.batch import PageTables, TokenTable, ragged_range
from framework_torch.cache import KvCache


def updates(rows) -> PageUpdates:
    return PageUpdates(
        slots=np.array([row[0] for row in rows], np.int32),
        starts=np.array([row[1] for row in rows], np.int32),
        counts=np.array([len(row[2]) for row in rows], np.int32),
        ids=np.array([page for row in rows for page in row[2]], np.int32),
        replace=np.array([row[3] for row in rows], np.bool_),
    )


ROW = st.tuples(
    st.integers(0, 3), st.integers(0, 4), st.lists(st.integers(1, 99), max_size=4), st.booleans()
)


@given(st.lists(st.lists(ROW, max_size=6), max_size=4))
def test_page_updates_equal_their_definition_one_at_a_time(steps) -> None:
    tables = PageTables(groups=1, max_slots=4, max_pages=8)
    right = np.zeros((4, 8), np.int32)
    for rows in steps:
        tables.apply((updates(rows),))
        for slot, start, ids, replace in rows:
            if replace:
                right[slot] = 0
            right[slot, start : start + len(ids)] = ids
        assert (tables.groups[0] == right).all()


@given(st.lists(st.integers(0, 5), max_size=8))
def test_a_ragged_range_counts_anew_for_every_row(counts) -> None:
    right = [number for count in counts for number in range(count)]
    assert ragged_range(np.array(counts, np.int32)).tolist() == right


def test_tokens_past_the_table_are_dropped_and_the_last_of_a_slot_counts() -> None:
    table = TokenTable(max_slots=2, max_len=4)
    table.fill(0, np.array([1, 2], np.int32), 2)
    table.fill(1, np.array([1, 2, 3, 4], np.int32), 4)
    slots = np.array([0, 0, 1, 1], np.int32)
    table.append(slots, np.array([2, 3, 4, 5]), np.array([7, 8, 9, 10], np.int32))
    assert table.tokens.tolist() == [[1, 2, 7, 8, 0], [1, 2, 3, 4, 9]]
    assert table.known.tolist() == [4, 5]


@pytest.mark.parametrize("layout", ["page_outermost", "layer_outermost"])
def test_layers_of_all_groups_share_the_pool_without_touching_another_page(layout) -> None:
    wide = FullAttentionSpec(num_kv_heads=2, head_size=4, head_size_v=4, dtype="float32")
    small = FullAttentionSpec(num_kv_heads=1, head_size=4, head_size_v=2, dtype="bfloat16")
    groups = (
        CacheGroup(spec=wide, layers=("a", "b"), page_tokens=2),
        CacheGroup(spec=small, layers=("c",), page_tokens=8),
    )
    plan = CachePlan(
        groups=groups, num_pages=5, page_bytes=256, slab_bytes=128, max_pages_per_request=3
    )
    params = AttentionParams(scale=1.0)
    layers = {
        name: AttentionLayer(spec=group.spec, num_heads=2, params=params)
        for group in groups
        for name in group.layers
    }
    backend = SdpaBackend()
    cache = KvCache(plan, layers, {wide: backend, small: backend}, "cpu")
    assert cache.layers["a"].view.shape == (5, 2, 2, 8)
    assert cache.layers["c"].view.shape == (5, 8, 1, 6)
    assert not any(layer.view.any() for layer in cache.layers.values())
    for number, name in enumerate("ab"):
        cache.layers[name].view[3] = number + 1.0
    cache.layers["c"].view[1] = 7.0
    cache.apply((KvOp("copy", 0, 3, 4), KvOp("zero", 0, 0, 3), KvOp("copy", 1, 1, 2)))
    for number, name in enumerate("ab"):
        view = cache.layers[name].view
        assert (view[4] == number + 1.0).all()
        assert not view[torch.tensor([0, 3])].any(), "pages 1 and 2 are of the other group"
    assert (cache.layers["c"].view[1:3] == 7.0).all()
    assert not cache.layers["b"].view[1:3].any(), "the group has one layer only"


def test_slabs_in_which_an_element_would_begin_between_two_others_are_refused() -> None:
    spec = FullAttentionSpec(num_kv_heads=1, head_size=1, head_size_v=1, dtype="float32")
    layers = {"a": AttentionLayer(spec=spec, num_heads=1, params=AttentionParams(scale=1.0))}
    plan = CachePlan(
        groups=(CacheGroup(spec=spec, layers=("a",), page_tokens=1),),
        num_pages=2,
        page_bytes=10,
        slab_bytes=10,
        max_pages_per_request=1,
    )
    with pytest.raises(ConfigError, match="multiple of 4 bytes"):
        KvCache(plan, layers, {spec: SdpaBackend()}, "cpu")
