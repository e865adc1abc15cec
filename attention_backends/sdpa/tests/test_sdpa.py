"""What the conformance suite of attention backends does not see of the reference backend.

That it is right, and refuses what it rejects, is in tests/conformance/test_attention_backend.py.
"""

from dataclasses import replace

import pytest

from framework.contracts.attention_backend import (
    AttentionParams,
    AttentionQuery,
    AttentionSupported,
    CommonMetadata,
)
from framework.contracts.base import Rejected
from framework.contracts.kv_cache_spec import (
    CrossAttentionSpec,
    EncoderOnlySpec,
    FullAttentionSpec,
    KVCacheSpec,
    MLASpec,
)
from framework.contracts.step import CacheGroup
from framework.errors import UnsupportedError
from framework.testing.conformance import check
from framework_sdpa import attention
from framework_sdpa.backend import SdpaBackend

QUERY = AttentionQuery(
    platform="cpu",
    dtype="float32",
    cache_dtype="float32",
    head_size=8,
    head_size_v=8,
    num_heads=4,
    num_kv_heads=2,
)
SHAPE = {"num_kv_heads": 2, "head_size": 8, "head_size_v": 8}


def test_queries_taken_in_pieces_change_nothing(monkeypatch) -> None:
    monkeypatch.setattr(attention, "SCORE_ELEMENTS", 100)
    report = check("attention_backend:sdpa", only=("ATTN-030", "ATTN-107", "ATTN-108", "ATTN-109"))
    assert report.counts() == {"passed": 4}, report.text()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tensor_api", "jax"),
        ("dtype", "int8"),
        ("cache_dtype", "float8_e4m3"),
        ("layer_type", "cross"),
        ("mask", "mixed"),
        ("window", 0),
        ("chunk", 0),
        ("sink_tokens", 4),
        ("head_size", 0),
        ("head_size_v", 0),
        ("mla", True),
        ("cascade", True),
        ("context_parallel", 2),
        ("graph_mode", "full"),
        ("num_heads", 3),
        ("page_tokens", 0),
    ],
)
def test_what_it_cannot_do_is_rejected_by_field(field: str, value: object) -> None:
    answer = SdpaBackend().answer(replace(QUERY, **{field: value}))
    assert isinstance(answer, Rejected)
    assert [reason.field for reason in answer.reasons] == [field]


def test_any_page_size_is_served_when_asked_for() -> None:
    offered = SdpaBackend().answer(QUERY)
    assert isinstance(offered, AttentionSupported)
    assert offered.page_tokens[0] == 16
    agreed = SdpaBackend().answer(replace(QUERY, page_tokens=13))
    assert isinstance(agreed, AttentionSupported)
    assert agreed.page_tokens == (13,)


@pytest.mark.parametrize(
    ("spec", "page_tokens", "about"),
    [
        (KVCacheSpec(), 16, "kind of cache"),
        (MLASpec(latent_size=8, rope_size=4, dtype="float32"), 16, "kind of cache"),
        (CrossAttentionSpec(**SHAPE, dtype="float32", encoder_length=9), 16, "kind of cache"),
        (FullAttentionSpec(**SHAPE, dtype="float8_e5m2"), 16, "type of cache"),
        (FullAttentionSpec(**SHAPE, dtype="float32"), 0, "page size"),
    ],
)
def test_a_cache_that_it_cannot_store_is_refused(
    spec: KVCacheSpec, page_tokens: int, about: str
) -> None:
    with pytest.raises(UnsupportedError, match=about):
        SdpaBackend().layout(spec, page_tokens, 4)


INSIDE = replace(QUERY, layer_type="encoder_only", mask="bidirectional")


@pytest.mark.parametrize(
    ("field", "value"),
    [("mask", "causal"), ("softcap", 2.0), ("alibi", True), ("sinks", True), ("window", 3)],
)
def test_attention_without_a_cache_is_plain_and_two_way(field, value) -> None:
    backend = SdpaBackend()
    assert isinstance(backend.answer(INSIDE), AttentionSupported)
    answer = backend.answer(replace(INSIDE, **{field: value}))
    assert isinstance(answer, Rejected)
    assert field in {reason.field for reason in answer.reasons}


def _inside(causal=False, **params):
    """(output, q, k, v) of rows of 3, 0, 1 and 5 tokens."""
    import numpy as np
    import torch

    torch.manual_seed(0)
    q, k, v = (torch.randn(9, heads, size) for heads, size in ((4, 8), (2, 8), (2, 6)))
    starts, lengths = np.array([0, 3, 3, 4, 9], np.int32), np.array([3, 0, 1, 5], np.int32)
    common = CommonMetadata(
        query_starts=torch.from_numpy(starts),
        lengths=torch.from_numpy(lengths),
        page_table=torch.zeros(4, 1, dtype=torch.int32),
        slot_mapping=torch.zeros(9, dtype=torch.int64),
        query_starts_host=starts,
        lengths_host=lengths,
        max_query=5,
        max_length=5,
        causal=causal,
    )
    backend, spec = SdpaBackend(), EncoderOnlySpec()
    layout = backend.layout(spec, 16, 7)
    group = CacheGroup(spec=spec, layers=("a",), page_tokens=16)
    metadata = backend.builder(group).plan(common)
    out = torch.full((9, 4, 6), torch.nan)
    cache = torch.zeros(layout.shape)
    assert cache.numel() == 0
    backend.run(q, k, v, cache, metadata, AttentionParams(scale=0.3, **params), out)
    return out, q, k, v


def test_without_a_cache_each_token_sees_its_row_and_nothing_else() -> None:
    import torch

    out, q, k, v = _inside()
    for low, high in ((0, 3), (3, 4), (4, 9)):
        for head in range(4):
            parts = (q[:, head], k[:, head // 2], v[:, head // 2])
            queries, keys, values = (part[low:high].double() for part in parts)
            right = (queries @ keys.T * 0.3).softmax(-1) @ values
            torch.testing.assert_close(out[low:high, head].double(), right, atol=1e-5, rtol=0)


@pytest.mark.parametrize("params", [{"softcap": 2.0}, {"window": 3}, {"causal": True}])
def test_what_is_rejected_without_a_cache_is_refused(params) -> None:
    with pytest.raises(UnsupportedError):
        _inside(**params)
