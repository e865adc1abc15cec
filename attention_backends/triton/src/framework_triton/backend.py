"""The entry point; torch and triton are imported on first use."""

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
from framework.contracts.kv_cache_spec import CrossAttentionSpec, FullAttentionSpec, KVCacheSpec
from framework_triton.answer import FLOATS, MOST_HEAD_SIZE, answer, refuse

if TYPE_CHECKING:
    import torch

    from framework.contracts.step import CacheGroup


class _Builder:
    def plan(self, common: CommonMetadata, reuse: object | None = None) -> object:
        from framework_triton.step import Step

        return Step(common)


class TritonBackend(AttentionBackend):
    """Cache of a layer: [num_pages, kv_heads, page_tokens, head_size + head_size_v]; what a page
    holds of a head is one piece of memory, K and V of a token lie side by side."""

    def answer(self, query: AttentionQuery) -> Answer:
        return answer(query)

    def layout(self, spec: KVCacheSpec, page_tokens: int, num_pages: int) -> CacheLayout:
        if not isinstance(spec, FullAttentionSpec) or isinstance(spec, CrossAttentionSpec):
            raise refuse("kind of cache", "FullAttentionSpec", type(spec).__name__)
        if spec.dtype not in FLOATS:
            raise refuse("type of cache", " or ".join(FLOATS), spec.dtype)
        if page_tokens < 1:
            raise refuse("page size", "at least 1 token", page_tokens)
        for size in (spec.head_size, spec.head_size_v):
            if size > MOST_HEAD_SIZE:
                raise refuse("size of a head", f"at most {MOST_HEAD_SIZE}", size)
        width = spec.head_size + spec.head_size_v
        return CacheLayout(
            shape=(num_pages, spec.num_kv_heads, page_tokens, width), dtype=spec.dtype
        )

    def builder(self, group: CacheGroup) -> MetadataBuilder:
        return _Builder()

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
        metadata.run(q, k, v, cache, params, out)
