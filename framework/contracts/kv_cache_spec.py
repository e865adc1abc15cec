"""Kind `kv_cache_spec`: what one layer keeps of the past, and who manages its pages.

A *spec* is a frozen value, one per layer.  Layers with equal specs form a group, which
shares page tables.  A *cache manager type* decides, for the groups of one spec class,
which pages a request needs, may reuse and may give back.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from framework.contracts.base import Contract

DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3": 1, "float8_e5m2": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCacheSpec:
    """Base of all specs."""

    def page_bytes(self, page_tokens: int) -> int:
        """Bytes of one page of one layer, for a page of `page_tokens` tokens."""
        raise NotImplementedError

    def max_pages(self, length: int, page_tokens: int) -> int:
        """Most pages that a request of `length` tokens can hold at one time."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class FullAttentionSpec(KVCacheSpec):
    """Keys and values of every token.

    dtype: name of the element type.  head_size_v may differ from head_size.
    """

    num_kv_heads: int
    head_size: int
    head_size_v: int
    dtype: str

    def page_bytes(self, page_tokens: int) -> int:
        per_token = self.num_kv_heads * (self.head_size + self.head_size_v)
        return page_tokens * per_token * DTYPE_BYTES[self.dtype]

    def max_pages(self, length: int, page_tokens: int) -> int:
        return -(-length // page_tokens)


class CacheManagerType(Contract):
    """How pages of one group are used.  Stateless: the KV manager owns pages and tables.

    Positions are tokens, page indices count from the start of the request.
    """

    kind: ClassVar[str] = "kv_cache_spec"
    spec_class: ClassVar[type[KVCacheSpec]]

    @abstractmethod
    def longest_hit(self, present: Sequence[bool], page_tokens: int, spec: KVCacheSpec) -> int:
        """Pages, counted from the start, that a request may take as computed.

        present[i]: the cache holds page i of the request.  The answer h must be such that
        with the pages of [0, h) that are present the next token can be computed.
        """
