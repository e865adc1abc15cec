"""How the memory of the KV cache is divided: groups of layers, pages, slabs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from framework.contracts.kv_cache_spec import KVCacheSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheGroup:
    """Layers that share page tables.

    layers: names of the layers, in order.  page_tokens: tokens per page of this group.
    """

    spec: KVCacheSpec
    layers: tuple[str, ...]
    page_tokens: int


CacheLayoutName = Literal["page_outermost", "layer_outermost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePlan:
    """How the one buffer of `num_pages * page_bytes` bytes is divided.

    Every page has room for one group, whichever takes it: `places` slabs of `slab_bytes`,
    one per layer of the group.  A layer may fill less than its slab; the rest is padding.

        page_outermost    |page 0: slab 0, slab 1 |page 1: slab 0, slab 1 |...
        layer_outermost   |slab 0 of page 0, 1, 2 ...     |slab 1 of page 0, 1, 2 ...

    Page 0 is the null page of all groups: never owned, reads of it are masked, writes to it
    are allowed and meaningless.  num_pages counts it.  max_pages_per_request: width of a
    page table, the widest of all groups.
    """

    groups: tuple[CacheGroup, ...]
    num_pages: int
    page_bytes: int
    slab_bytes: int
    max_pages_per_request: int
    layout: CacheLayoutName = "page_outermost"

    @property
    def places(self) -> int:
        """Slabs in a page, one for each layer of a group."""
        return self.page_bytes // self.slab_bytes if self.slab_bytes else 0

    def placement(self, place: int) -> tuple[int, int]:
        """(offset, stride) in bytes: page p of the layer at index `place` of its group begins
        at offset + p * stride."""
        if self.layout == "page_outermost":
            return place * self.slab_bytes, self.page_bytes
        return place * self.num_pages * self.slab_bytes, self.slab_bytes
