"""The entry point; torch and the part in C are imported on first use."""

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
from framework_cpu_paged.answer import FLOATS, LANES, answer, refuse

if TYPE_CHECKING:
    import torch

    from framework.contracts.step import CacheGroup


class _Builder:
    """page_tokens: of the group, which its caches' shape does not tell."""

    def __init__(self, page_tokens: int) -> None:
        self._page_tokens = page_tokens

    def plan(self, common: CommonMetadata, reuse: object | None = None) -> object:
        from framework_cpu_paged.calls import Step

        return Step(common, self._page_tokens)


def _check_page(page_tokens: int) -> None:
    """UnsupportedError for a size that `answer` rejects."""
    if page_tokens < 1 or page_tokens % LANES:
        raise refuse("page size", f"a multiple of {LANES} tokens", page_tokens)


class CpuPagedBackend(AttentionBackend):
    """Cache of a layer: [num_pages, kv_heads, page_tokens * (head_size + head_size_v)]; in a
    page and head K of LANES tokens lie side by side, dimension by dimension; V follow as
    [page_tokens, head_size_v]."""

    def answer(self, query: AttentionQuery) -> Answer:
        return answer(query)

    def layout(self, spec: KVCacheSpec, page_tokens: int, num_pages: int) -> CacheLayout:
        if not isinstance(spec, FullAttentionSpec) or isinstance(spec, CrossAttentionSpec):
            raise refuse("kind of cache", "FullAttentionSpec", type(spec).__name__)
        if spec.dtype not in FLOATS:
            raise refuse("type of cache", " or ".join(FLOATS), spec.dtype)
        _check_page(page_tokens)
        if spec.head_size_v % LANES:
            raise refuse("head_size_v", f"a multiple of {LANES}", spec.head_size_v)
        width = page_tokens * (spec.head_size + spec.head_size_v)
        return CacheLayout(shape=(num_pages, spec.num_kv_heads, width), dtype=spec.dtype)

    def builder(self, group: CacheGroup) -> MetadataBuilder:
        _check_page(group.page_tokens)
        return _Builder(group.page_tokens)

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
