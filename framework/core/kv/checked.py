"""Specs and cache managers come from plugins: what they answer is never taken on trust.

An answer that would lose or share the wrong pages becomes a PluginError that names the plugin.
While the engine starts it stops the start; later it ends the request for which it was asked.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from numbers import Integral

from framework.contracts.base import name_of
from framework.contracts.kv_cache_spec import CacheManagerType, KVCacheSpec
from framework.core.answers import integer
from framework.plugins.blame import blaming, unfit
from framework.shown import shown

logger = logging.getLogger("framework.cache")

_LARGEST = 2**62


def page_bytes(spec: KVCacheSpec, page_tokens: int) -> int:
    """Bytes of a page of `page_tokens` tokens of one layer, at least 0."""
    with blaming(spec, "counting the bytes of a page"):
        answer = spec.page_bytes(page_tokens)
    return _count(spec, "page_bytes", answer)


def max_pages(spec: KVCacheSpec, length: int, page_tokens: int, step_tokens: int) -> int:
    """Most pages that a request of `length` tokens holds at one time, at least 0."""
    with blaming(spec, "counting the pages of a request"):
        answer = spec.max_pages(length, page_tokens, step_tokens)
    return _count(spec, "max_pages", answer)


def checked_managers(managers: Iterable[CacheManagerType]) -> tuple[CacheManagerType, ...]:
    """The managers, with their answers checked.  Of two that serve one class of specs the later
    is kept, and the log says so.

    Raises PluginError for one that does not say what it serves.
    """
    found: dict[type[KVCacheSpec], CacheManagerType] = {}
    for manager in managers:
        own = _Checked(manager)
        if own.serves in found:
            names = f"{name_of(own)}, not by {name_of(found[own.serves])}"
            logger.warning("layers with %s are managed by %s", own.serves.__name__, names)
        found[own.serves] = own
    return tuple(found.values())


class _Checked(CacheManagerType):
    """Asks the manager of a plugin.  Its facts are read once, so that they cannot change."""

    def __init__(self, manager: CacheManagerType) -> None:
        super().__init__()
        self._manager = manager
        self.plugin_id = name_of(manager)
        with blaming(manager, "telling what it serves"):
            serves = manager.spec_class
            self.keeps_all = bool(manager.keeps_all)  # type: ignore[misc]
            self.carries_state = bool(manager.carries_state)  # type: ignore[misc]
            self.by_encoder = bool(manager.by_encoder)  # type: ignore[misc]
        if not (isinstance(serves, type) and issubclass(serves, KVCacheSpec)):
            raise unfit(manager, "serves no spec", "spec_class: a KVCacheSpec", shown(serves))
        self.spec_class = self.serves = serves  # type: ignore[misc]

    def longest_hit(self, present: Sequence[bool], page_tokens: int, spec: KVCacheSpec) -> int:
        """At most as many pages as were shown.  Raises PluginError."""
        with blaming(self._manager, "counting the pages of a hit"):
            answer: object = self._manager.longest_hit(tuple(present), page_tokens, spec)
            pages = _whole(answer)
        if pages is None or not 0 <= pages <= len(present):
            expected = f"a number of pages from 0 to {len(present)}"
            raise unfit(self._manager, "gave a wrong longest_hit", expected, shown(answer))
        return pages

    def droppable(self, computed: int, page_tokens: int, spec: KVCacheSpec) -> tuple[int, int]:
        """No page at or behind the next token: it is about to be written.  Raises PluginError."""
        with blaming(self._manager, "naming the pages that can be given back"):
            answer: object = self._manager.droppable(computed, page_tokens, spec)
            pair = answer if isinstance(answer, tuple) and len(answer) == 2 else (None, None)
            start, stop = _whole(pair[0]), _whole(pair[1])
        most = computed // page_tokens
        if start is not None and stop is not None and start >= 0 and stop <= most:
            return (start, stop) if start < stop else (0, 0)
        expected = f"two indices of pages from 0 to {most}, with {computed} tokens computed"
        raise unfit(self._manager, "gave a wrong droppable", expected, shown(answer))


def _whole(value: object) -> int | None:
    """An int; None for what is none, a bool among it."""
    return None if isinstance(value, bool) or not isinstance(value, Integral) else integer(value)


def _count(spec: KVCacheSpec, method: str, answer: object) -> int:
    with blaming(spec, f"answering {method}"):
        count = _whole(answer)
    if count is None or not 0 <= count <= _LARGEST:
        raise unfit(spec, f"gave a wrong {method}", "an integer >= 0", shown(answer))
    return count
