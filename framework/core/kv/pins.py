"""Prefixes that are kept whatever happens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from framework.core.kv.pages import NULL_PAGE

if TYPE_CHECKING:
    from framework.core.kv.pages import PagePool
    from framework.core.kv.prefix import Match


class Pins:
    """Pinned pages, by key; each holds one reference."""

    def __init__(self, pool: PagePool) -> None:
        self._pool = pool
        self._pages: dict[int, list[int]] = {}

    def pin(self, key: int, match: Match) -> None:
        """Keep the matched pages until `unpin`."""
        pages = [page for group in match.pages for page in group if page != NULL_PAGE]
        self._pool.acquire(pages)
        self._pages[key] = pages

    def unpin(self, key: int) -> bool:
        """False if nothing is pinned under `key`, or it is no key."""
        pages = self._pages.pop(key, None) if type(key) is int else None
        self._pool.release(pages or ())
        return pages is not None

    def pages(self) -> Iterable[list[int]]:
        """Pages of every pin."""
        return self._pages.values()

    def __len__(self) -> int:
        """Pages that are pinned, each counted once."""
        return len({page for pages in self._pages.values() for page in pages})
