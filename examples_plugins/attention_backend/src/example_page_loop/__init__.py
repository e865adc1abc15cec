"""An attention backend that reads the cache page by page and keeps a running softmax.

    of the keys so far   highest score [heads, queries] | sum of weights | weighted sum of values

A page with a higher score scales what was summed before it; so no row of scores is ever whole.
A layer's cache is [pages, tokens of a page, kv_heads, head_size + head_size_v].
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from framework.contracts import attention_backend as contract
from framework.contracts.base import Answer, Rejected, Rejection
from framework.contracts.kv_cache_spec import FullAttentionSpec, KVCacheSpec
from framework.errors import UnsupportedError

if TYPE_CHECKING:
    import torch

    from framework.contracts.step import CacheGroup

FLOATS = ("float32", "bfloat16", "float16")
SERVED: dict[str, tuple[object, ...]] = {
    "tensor_api": ("torch",),
    "dtype": FLOATS,
    "cache_dtype": FLOATS,
    "layer_type": ("decoder",),
    "mask": ("causal",),
    **dict.fromkeys(("window", "chunk", "softcap"), (None,)),
    **dict.fromkeys(("alibi", "sinks", "mla", "cascade"), (False,)),
    "sink_tokens": (0,),
    "context_parallel": (1,),
    "graph_mode": ("none",),
}


class Same:
    """The common metadata is all that is needed."""

    def plan(self, common: contract.CommonMetadata, reuse: object | None = None) -> object:
        return common


class PageLoop(contract.AttentionBackend):
    """Causal attention in float32, one row and one page at a time."""

    def answer(self, query: contract.AttentionQuery) -> Answer:
        needs = {f: some for f, some in SERVED.items() if getattr(query, f) not in some}
        if min(query.num_heads, query.num_kv_heads) < 1 or query.num_heads % query.num_kv_heads:
            needs["num_heads"] = ("a multiple of num_kv_heads",)
        if query.page_tokens is not None and query.page_tokens < 1:
            needs["page_tokens"] = ("at least 1",)
        if not needs:
            sizes = (16, 32, 64) if query.page_tokens is None else (query.page_tokens,)
            return contract.AttentionSupported(page_tokens=sizes)
        found = {"remedy": "choose another attention backend"}
        return Rejected(
            tuple(
                Rejection(code=f, field=f, found=getattr(query, f), needed=some, **found)
                for f, some in needs.items()
            )
        )

    def layout(self, spec: KVCacheSpec, page_tokens: int, num_pages: int) -> contract.CacheLayout:
        if type(spec) is not FullAttentionSpec or spec.dtype not in FLOATS:
            raise UnsupportedError("this cache cannot be stored", found=spec)
        width = spec.head_size + spec.head_size_v
        shape = (num_pages, page_tokens, spec.num_kv_heads, width)
        return contract.CacheLayout(shape=shape, dtype=spec.dtype)

    def builder(self, group: CacheGroup) -> contract.MetadataBuilder:
        return Same()

    def run(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        cache: torch.Tensor,
        metadata: Any,
        params: contract.AttentionParams,
        out: torch.Tensor,
    ) -> None:
        import torch

        if not metadata.causal or params != contract.AttentionParams(scale=params.scale):
            raise UnsupportedError("plain causal attention is all that is served", found=params)
        size, slots = cache.shape[1], metadata.slot_mapping
        cache[slots // size, slots % size] = torch.cat((k, v), dim=-1).to(cache.dtype)
        for row, length in enumerate(metadata.lengths_host.tolist()):
            first, last = metadata.query_starts_host[row : row + 2].tolist()
            if first == last:
                continue
            place = torch.arange(length - (last - first), length, device=q.device)
            query = q[first:last].float() * params.scale
            query = query.unflatten(1, (k.shape[1], -1))  # [queries, kv_heads, group, head_size]
            best = torch.full(query.shape[:-1], -torch.inf, device=q.device)
            total = torch.zeros_like(best)
            summed = query.new_zeros(*best.shape, v.shape[-1])
            for page, start in enumerate(range(0, length, size)):
                both = cache[metadata.page_table[row, page], : length - start].float()
                scores = torch.einsum("qkgd,lkd->qkgl", query, both[..., : k.shape[-1]])
                keys = torch.arange(start, start + len(both), device=q.device)
                later = keys > place[:, None, None, None]
                scores = scores.masked_fill(later, -torch.inf)
                higher = torch.maximum(best, scores.amax(-1))
                weights, scale = (scores - higher[..., None]).exp(), (best - higher).exp()
                added = torch.einsum("qkgl,lkd->qkgd", weights, both[..., k.shape[-1] :])
                total = total * scale + weights.sum(-1)
                summed = summed * scale[..., None] + added
                best = higher
            out[first:last] = (summed / total[..., None]).flatten(1, 2).to(out.dtype)
