"""The entry point; the arithmetic, which needs torch, is imported on first use."""

from __future__ import annotations

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
from framework.contracts.kv_cache_spec import FullAttentionSpec, KVCacheSpec
from framework.errors import UnsupportedError
from framework_sdpa.answer import answer

if TYPE_CHECKING:
    import torch

    from framework.contracts.step import CacheGroup


class _SameMetadata:
    """The common metadata is all that this backend needs."""

    def plan(self, common: CommonMetadata, reuse: object | None = None) -> object:
        return common


class SdpaBackend(AttentionBackend):
    """Cache of a layer: [num_pages, page_tokens, kv_heads, head_size + head_size_v];
    K and V of a token lie side by side, so that head sizes may differ."""

    def answer(self, query: AttentionQuery) -> Answer:
        return answer(query)

    def layout(self, spec: KVCacheSpec, page_tokens: int, num_pages: int) -> CacheLayout:
        if not isinstance(spec, FullAttentionSpec):
            raise UnsupportedError(
                "the sdpa backend cannot store this kind of cache",
                expected="FullAttentionSpec",
                found=type(spec).__name__,
                mend="choose an attention backend that serves it",
            )
        width = spec.head_size + spec.head_size_v
        return CacheLayout(
            shape=(num_pages, page_tokens, spec.num_kv_heads, width), dtype=spec.dtype
        )

    def builder(self, group: CacheGroup) -> MetadataBuilder:
        return _SameMetadata()

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
        from framework_sdpa.attention import attend, write

        write(k, v, cache, metadata.slot_mapping)
        attend(q, cache, metadata, params, out)
