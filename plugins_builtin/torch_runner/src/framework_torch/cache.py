"""The KV cache: one buffer, cut into pages; a page holds all layers of one group.

    buffer   |page 0 (null)       |page 1              |page 2 ...
    a page   |layer a |layer b |..|                      bytes = CachePlan.page_bytes

Groups share the pages, so a page's bytes must not depend on the group that owns it; that is
why layers lie inside of the page and not the other way round.
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
from framework.contracts.kv_cache_spec import KVCacheSpec
from framework.contracts.model import AttentionLayer
from framework.contracts.step import CacheGroup, CachePlan, KvOp
from framework.errors import PluginError
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
        self._pages = _zeros(plan.num_pages * plan.page_bytes, device).view(plan.num_pages, -1)
        self.layers: dict[str, LayerCache] = {}
        self.builders: list[MetadataBuilder] = []
        self.backends: list[AttentionBackend] = []
        for index, group in enumerate(plan.groups):
            backend = backends[group.spec]
            self.backends.append(backend)
            with blaming(backend, "making a metadata builder"):
                self.builders.append(backend.builder(group))
            views = self._views(group, backend)
            for name, view in zip(group.layers, views, strict=True):
                self.layers[name] = LayerCache(
                    group=index,
                    backend=backend,
                    view=view,
                    params=layers[name].params,
                    head_size_v=getattr(group.spec, "head_size_v", 0),
                )

    def _views(self, group: CacheGroup, backend: AttentionBackend) -> Sequence[torch.Tensor]:
        """One view per layer, in the backend's layout, strided over pages."""
        with blaming(backend, "laying out its pages"):
            layout = expect(
                backend,
                "layout",
                backend.layout(group.spec, group.page_tokens, self.plan.num_pages),
                CacheLayout,
            )
            dtype = getattr(torch, layout.dtype)
        size = math.prod(layout.shape[1:]) * dtype.itemsize
        if layout.shape[0] != self.plan.num_pages or size != group.spec.page_bytes(
            group.page_tokens
        ):
            raise PluginError(
                f"attention backend {name_of(backend)} lays pages out in another size "
                f"than the cache was planned for",
                plugin=name_of(backend),
                distribution=name_of(backend).partition("@")[2] or None,
                expected=f"{group.spec.page_bytes(group.page_tokens)} bytes a page and layer",
                found=f"shape {layout.shape} of {layout.dtype}",
                mend="choose another attention backend",
            )
        return [
            self._pages[:, start : start + size].view(dtype).unflatten(1, layout.shape[1:])
            for start in range(0, size * len(group.layers), size)
        ]

    def apply(self, operations: Sequence[KvOp]) -> None:
        """Whole pages, in the order given: all layers of the group at once."""
        for operation in operations:
            if operation.kind == "zero":
                self._pages[operation.target].zero_()
            else:
                self._pages[operation.target].copy_(self._pages[operation.source])


def _zeros(size: int, device: str) -> torch.Tensor:
    """Zeroed bytes.  On the host numpy's calloc leaves untouched pages to the system, where
    torch would write all of them at start-up."""
    if device == "cpu":
        return torch.from_numpy(np.zeros(size, np.uint8))
    return torch.zeros(size, dtype=torch.uint8, device=device)
