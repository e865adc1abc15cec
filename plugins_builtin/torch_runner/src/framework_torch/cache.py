"""The KV cache: one buffer, cut into slabs as the plan says; a layer sees its slab of every
page, and its group owns some of the pages.

    group 0 (layers a, b)    group 1 (layers c, d; less a token, so more tokens a page)
    page 1 |a      |b      |    page 2 |c     .|d     .|      . padding
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from framework.contracts.attention_backend import (
    AttentionBackend,
    AttentionParams,
    CacheLayout,
    MetadataBuilder,
)
from framework.contracts.base import name_of
from framework.contracts.kv_cache_spec import EncoderOnlySpec, KVCacheSpec
from framework.contracts.model import AttentionLayer
from framework.contracts.step import CacheGroup, CachePlan, KvOp
from framework.errors import ConfigError, PluginError
from framework.plugins.blame import blaming, expect


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCache:
    """What a layer needs to attend: its group, its backend and its part of the buffer."""

    group: int
    backend: AttentionBackend
    view: torch.Tensor
    params: AttentionParams
    head_size_v: int


class KvCache:
    """Allocates the buffer and hands out views; runs whole-page operations."""

    def __init__(
        self,
        plan: CachePlan,
        layers: Mapping[str, AttentionLayer],
        backends: Mapping[KVCacheSpec, AttentionBackend],
        device: str,
    ) -> None:
        self.plan = plan
        self._buffer = _zeros(plan.num_pages * plan.page_bytes, device)
        self.layers: dict[str, LayerCache] = {}
        self.builders: list[MetadataBuilder] = []
        self.backends: list[AttentionBackend] = []
        self.causal: list[bool] = []
        # By group, layer by layer: uint8 [num_pages, bytes of a page of the layer].
        self._slabs: list[list[torch.Tensor]] = []
        for index, group in enumerate(plan.groups):
            backend = backends[group.spec]
            self.backends.append(backend)
            self.causal.append(not isinstance(group.spec, EncoderOnlySpec))
            with blaming(backend, "making a metadata builder"):
                self.builders.append(backend.builder(group))
            layout = self._layout(group, backend)
            self._slabs.append([self._slab(group, place) for place in range(len(group.layers))])
            for name, slab in zip(group.layers, self._slabs[-1], strict=True):
                self.layers[name] = LayerCache(
                    group=index,
                    backend=backend,
                    view=slab.view(getattr(torch, layout.dtype)).view(layout.shape),
                    params=layers[name].params,
                    head_size_v=getattr(group.spec, "head_size_v", 0),
                )

    def _slab(self, group: CacheGroup, place: int) -> torch.Tensor:
        offset, stride = self.plan.placement(place)
        size = group.spec.page_bytes(group.page_tokens)
        return self._buffer.as_strided((self.plan.num_pages, size), (stride, 1), offset)

    def _layout(self, group: CacheGroup, backend: AttentionBackend) -> CacheLayout:
        """The backend's, checked against the plan."""
        with blaming(backend, "laying out its pages"):
            layout = expect(
                backend,
                "layout",
                backend.layout(group.spec, group.page_tokens, self.plan.num_pages),
                CacheLayout,
            )
            width = getattr(torch, layout.dtype).itemsize
        size = math.prod(layout.shape[1:]) * width
        planned = group.spec.page_bytes(group.page_tokens)
        if layout.shape[0] != self.plan.num_pages or size != planned:
            raise PluginError(
                f"attention backend {name_of(backend)} lays pages out in another size "
                f"than the cache was planned for",
                plugin=name_of(backend),
                distribution=name_of(backend).partition("@")[2] or None,
                expected=f"{planned} bytes a page and layer",
                found=f"shape {layout.shape} of {layout.dtype}",
                mend="choose another attention backend",
            )
        if self.plan.slab_bytes % width:
            raise ConfigError(
                "the cache plan puts elements where none of their type may begin",
                expected=f"slabs of a multiple of {width} bytes, for {layout.dtype}",
                found=f"slabs of {self.plan.slab_bytes} bytes",
                mend="choose a page size in tokens that is a power of two",
            )
        return layout

    def apply(self, operations: Sequence[KvOp]) -> None:
        """Whole pages of a group, all its layers, in the order given."""
        for operation in operations:
            for slab in self._slabs[operation.group]:
                if operation.kind == "zero":
                    slab[operation.target].zero_()
                else:
                    slab[operation.target].copy_(slab[operation.source])


def _zeros(size: int, device: str) -> torch.Tensor:
    """Zeroed bytes.  On the host numpy's calloc leaves untouched pages to the system, where
    torch would write all of them at start-up."""
    if device == "cpu":
        return torch.from_numpy(np.zeros(size, np.uint8))
    return torch.zeros(size, dtype=torch.uint8, device=device)
