"""What a stage for attention is made of: a place, requests, values, options."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from framework.contracts.cache_plan import CacheLayoutName
from framework.contracts.kv_cache_spec import FullAttentionSpec
from framework.contracts.platform import DeviceFacts
from framework.contracts.tensor_bridge import TensorBridge
from framework.testing.conformance.cases import TOLERANCES
from framework.testing.conformance.suites.attention_reference import F64, Features

FINITE, NAN = 0x42, 0xFF
"""Bytes that are a number, or none, in every element type."""

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a backend is tried."""

    bridge: TensorBridge
    facts: DeviceFacts
    tensor_api: str


@dataclass(slots=True, eq=False)
class Request:
    """table: pages, 0 where one was given back.  k, v: by layer, what the cache holds, in
    float64 [L, kv_heads, size]."""

    table: list[int]
    k: list[F64]
    v: list[F64]

    @property
    def length(self) -> int:
        return len(self.k[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """What a step computes with, T tokens, by layer."""

    q: list[F64]
    k: list[F64]
    v: list[F64]

    def part(self, first: int, last: int) -> Values:
        """Those of tokens [first, last)."""
        cut = [[x[first:last] for x in xs] for xs in (self.q, self.k, self.v)]
        return Values(q=cut[0], k=cut[1], v=cut[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a stage differs from the simplest.

    layout, padding: of the cache plan; padding in bytes behind each slab.  garbage: the byte
    that fills what nobody wrote.  parted: q, k and v are parts of one tensor.  magnitude: of
    queries and keys.  spec: in place of the one that goes with the features.
    """

    layout: CacheLayoutName = "page_outermost"
    padding: int = 0
    garbage: int = FINITE
    parted: bool = False
    magnitude: float = 1.0
    num_pages: int = 48
    spec: FullAttentionSpec | None = None


def coarser(features: Features) -> str:
    """The less precise of the element types on the way."""
    return max(features.dtype, features.cache_dtype, key=lambda name: TOLERANCES[name][1])


def packed(values: F64, dtype: str) -> Bytes:
    """The bytes of values that `dtype` holds exactly, along the last dimension."""
    if dtype == "bfloat16":  # the upper half of a float32
        halves = values.astype(np.float32).view(np.uint32) >> 16
        return halves.astype(np.uint16).view(np.uint8)
    return values.astype(np.dtype(dtype)).view(np.uint8)
