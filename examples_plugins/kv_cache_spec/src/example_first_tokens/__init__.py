"""A cache spec and its manager: attention over the first tokens of a request, and no others.

A layer with this spec reads the first `first` tokens for ever (an instruction, say) and keeps
nothing else, so that its memory is bounded whatever the length of the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from framework.contracts.kv_cache_spec import CacheManagerType, FullAttentionSpec, KVCacheSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstTokensSpec(FullAttentionSpec):
    """Keys and values of the first `first` tokens; a token also reads those of its own step."""

    first: int

    def reads(self, position: int) -> tuple[range, ...]:
        return (range(min(self.first, position)),)

    def max_pages(self, length: int, page_tokens: int, step_tokens: int) -> int:
        kept = -(-min(length, self.first) // page_tokens)
        return min(-(-length // page_tokens), kept + -(-step_tokens // page_tokens) + 1)


class FirstTokensManager(CacheManagerType):
    """Pages behind the first tokens are given back once they are computed."""

    spec_class: ClassVar[type[KVCacheSpec]] = FirstTokensSpec
    keeps_all: ClassVar[bool] = False

    def longest_hit(self, present: Sequence[bool], page_tokens: int, spec: KVCacheSpec) -> int:
        assert isinstance(spec, FirstTokensSpec)
        needed = -(-spec.first // page_tokens)
        for place, there in enumerate(present[:needed]):
            if not there:
                return place
        return len(present)

    def droppable(self, computed: int, page_tokens: int, spec: KVCacheSpec) -> tuple[int, int]:
        assert isinstance(spec, FirstTokensSpec)
        start, stop = -(-spec.first // page_tokens), computed // page_tokens
        return (start, stop) if stop > start else (0, 0)
