"""Which pages a group of layers may reuse and give back: by class of its spec."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from framework.contracts.kv_cache_spec import (
    CacheManagerType,
    ChunkedLocalSpec,
    CrossAttentionSpec,
    EncoderOnlySpec,
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    MLASpec,
    SinkWindowSpec,
    SlidingWindowSpec,
)
from framework.errors import ConfigError


def _unbroken(present: Sequence[bool]) -> int:
    for count, there in enumerate(present):
        if not there:
            return count
    return len(present)


def _longest_with_tail(present: Sequence[bool], tail: int) -> int:
    """Largest h such that the `tail` pages before it, or all before it, are present."""
    run = 0
    best = 0
    for count, there in enumerate(present, start=1):
        run = run + 1 if there else 0
        if run >= min(tail, count):
            best = count
    return best


class FullAttentionManager(CacheManagerType):
    """Every token is read for ever: a hit is an unbroken run of pages from the start."""

    spec_class: ClassVar[type[KVCacheSpec]] = FullAttentionSpec

    def longest_hit(self, present: Sequence[bool], page_tokens: int, spec: KVCacheSpec) -> int:
        return _unbroken(present)


class MLAManager(FullAttentionManager):
    """As full attention; only what lies in a page differs."""

    spec_class: ClassVar[type[KVCacheSpec]] = MLASpec


class SlidingWindowManager(CacheManagerType):
    """The last window - 1 tokens before the next one are read."""

    spec_class: ClassVar[type[KVCacheSpec]] = SlidingWindowSpec
    keeps_all: ClassVar[bool] = False

    def longest_hit(self, present: Sequence[bool], page_tokens: int, spec: KVCacheSpec) -> int:
        assert isinstance(spec, SlidingWindowSpec)
        return _longest_with_tail(present, -(-(spec.window - 1) // page_tokens))

    def droppable(self, computed: int, page_tokens: int, spec: KVCacheSpec) -> tuple[int, int]:
        assert isinstance(spec, SlidingWindowSpec)
        return 0, max(computed - spec.window + 1, 0) // page_tokens


class SinkWindowManager(SlidingWindowManager):
    """A window, and the pages of the first tokens."""

    spec_class: ClassVar[type[KVCacheSpec]] = SinkWindowSpec

    def longest_hit(self, present: Sequence[bool], page_tokens: int, spec: KVCacheSpec) -> int:
        assert isinstance(spec, SinkWindowSpec)
        first = -(-spec.sinks // page_tokens)
        if _unbroken(present) < min(first, len(present)):
            return _unbroken(present)
        return super().longest_hit(present, page_tokens, spec)

    def droppable(self, computed: int, page_tokens: int, spec: KVCacheSpec) -> tuple[int, int]:
        assert isinstance(spec, SinkWindowSpec)
        first = -(-spec.sinks // page_tokens)
        stop = super().droppable(computed, page_tokens, spec)[1]
        return (first, stop) if stop > first else (0, 0)


class ChunkedLocalManager(CacheManagerType):
    """Only the chunk of the next token is read."""

    spec_class: ClassVar[type[KVCacheSpec]] = ChunkedLocalSpec
    keeps_all: ClassVar[bool] = False

    def longest_hit(self, present: Sequence[bool], page_tokens: int, spec: KVCacheSpec) -> int:
        run = best = 0
        for count, there in enumerate(present, start=1):
            run = run + 1 if there else 0
            if run >= count - self.droppable(count * page_tokens, page_tokens, spec)[1]:
                best = count
        return best

    def droppable(self, computed: int, page_tokens: int, spec: KVCacheSpec) -> tuple[int, int]:
        assert isinstance(spec, ChunkedLocalSpec)
        return 0, computed // spec.chunk * spec.chunk // page_tokens


class MambaManager(CacheManagerType):
    """Only the newest page, which holds the state, matters."""

    spec_class: ClassVar[type[KVCacheSpec]] = MambaSpec
    keeps_all: ClassVar[bool] = False
    carries_state: ClassVar[bool] = True

    def longest_hit(self, present: Sequence[bool], page_tokens: int, spec: KVCacheSpec) -> int:
        return _longest_with_tail(present, 1)

    def droppable(self, computed: int, page_tokens: int, spec: KVCacheSpec) -> tuple[int, int]:
        return 0, max(computed - 1, 0) // page_tokens


class CrossAttentionManager(CacheManagerType):
    """Pages of the encoder's output; they neither grow nor restrict a hit."""

    spec_class: ClassVar[type[KVCacheSpec]] = CrossAttentionSpec
    by_encoder: ClassVar[bool] = True

    def longest_hit(self, present: Sequence[bool], page_tokens: int, spec: KVCacheSpec) -> int:
        return len(present)


class EncoderOnlyManager(CrossAttentionManager):
    """No pages at all."""

    spec_class: ClassVar[type[KVCacheSpec]] = EncoderOnlySpec


BUILT_IN = (
    FullAttentionManager,
    MLAManager,
    SlidingWindowManager,
    SinkWindowManager,
    ChunkedLocalManager,
    MambaManager,
    CrossAttentionManager,
    EncoderOnlyManager,
)


def manager_for(
    spec: KVCacheSpec, managers: Iterable[CacheManagerType], kept_out: str = ""
) -> CacheManagerType:
    """The manager of the nearest class of `spec`'s MRO.

    kept_out: managers that are there and may not be used, and why, for the message.
    Raises ConfigError without one.
    """
    by_class = {manager.spec_class: manager for manager in managers}
    for cls in type(spec).__mro__:
        if cls in by_class:
            return by_class[cls]
    known = sorted(cls.__name__ for cls in by_class)
    raise ConfigError(
        f"no cache manager serves the spec {type(spec).__name__}",
        expected=f"a plugin of kind kv_cache_spec for it; here are {known}",
        found=kept_out or "none",
        mend=("mend that, or allow it; else " if kept_out else "")
        + "install the plugin that the model's definition names, or use another model",
    )
