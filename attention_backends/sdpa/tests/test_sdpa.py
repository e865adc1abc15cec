"""What the conformance suite of attention backends does not see of the reference backend.

That it is right, and refuses what it rejects, is in tests/conformance/test_attention_backend.py.
"""

from dataclasses import replace

import pytest

from framework.contracts.attention_backend import AttentionQuery, AttentionSupported
from framework.contracts.base import Rejected
from framework.contracts.kv_cache_spec import (
    CrossAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    MLASpec,
)
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
