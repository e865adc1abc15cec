"""The entry point; the arithmetic, which needs torch, is imported on first use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from framework.contracts.attention_backend import (
    AttentionBackend,
    AttentionParams,
    AttentionQuery,
    CacheLayout,
    CommonMetadata,
    MetadataBuilder,
)
from framework.contracts.base import Answer
from framework.contracts.kv_cache_spec import (
    CrossAttentionSpec,
    EncoderOnlySpec,
    FullAttentionSpec,
    KVCacheSpec,
)
from framework_sdpa.answer import FLOATS, answer, check_inside, check_mask, refuse

if TYPE_CHECKING:
    import torch

    from framework.contracts.step import CacheGroup


class _SameMetadata:
    """The common metadata is all that this backend needs."""

    def plan(self, common: CommonMetadata, reuse: object | None = None) -> object:
        return common


@dataclass(frozen=True, slots=True)
class _Inside:
    """Of a group that keeps nothing."""

    common: CommonMetadata


class _InsideMetadata:
    """For attention among the tokens of a step."""

    def plan(self, common: CommonMetadata, reuse: object | None = None) -> object:
        return _Inside(common)


class SdpaBackend(AttentionBackend):
    """Cache of a layer: [num_pages, page_tokens, kv_heads, head_size + head_size_v];
    K and V of a token lie side by side, so that head sizes may differ."""

    def answer(self, query: AttentionQuery) -> Answer:
        return answer(query)

    def layout(self, spec: KVCacheSpec, page_tokens: int, num_pages: int) -> CacheLayout:
        if isinstance(spec, EncoderOnlySpec):
            return CacheLayout(shape=(num_pages, 0), dtype="float32")
        if not isinstance(spec, FullAttentionSpec) or isinstance(spec, CrossAttentionSpec):
            raise refuse("kind of cache", "FullAttentionSpec", type(spec).__name__)
        if spec.dtype not in FLOATS:
            raise refuse("type of cache", " or ".join(FLOATS), spec.dtype)
        if page_tokens < 1:
            raise refuse("page size", "at least 1 token", page_tokens)
        width = spec.head_size + spec.head_size_v
        return CacheLayout(
            shape=(num_pages, page_tokens, spec.num_kv_heads, width), dtype=spec.dtype
        )

    def builder(self, group: CacheGroup) -> MetadataBuilder:
        return _InsideMetadata() if isinstance(group.spec, EncoderOnlySpec) else _SameMetadata()

    def run(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        cache: torch.Tensor,
        metadata: Any,
        params: AttentionParams,
        out: torch.Tensor,
    ) -> None:
        from framework_sdpa.attention import attend, attend_inside, check, write

        check(q, k)
        if isinstance(metadata, _Inside):
            check_inside(params, metadata.common.causal)
            attend_inside(q, k, v, metadata.common, params, out)
            return
        check_mask(params, metadata.causal)
        write(k, v, cache, metadata.slot_mapping)
        attend(q, cache, metadata, params, out)
