"""The KV manager: which pages each slot owns, what may be shared, what can be reused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from framework.core.kv.hashing import PageHasher
from framework.core.kv.managers import manager_for
from framework.core.kv.pages import PagePool

if TYPE_CHECKING:
    from framework.contracts.kv_cache_spec import CacheManagerType
    from framework.contracts.step import I32, CachePlan
    from framework.core.request import Request


@dataclass(frozen=True, slots=True)
class Match:
    """Pages found in the prefix cache, per group, and the tokens that they hold."""

    tokens: int
    pages: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Growth:
    """New entries of one slot's page table in one group, from index `start` on."""

    group: int
    slot: int
    start: int
    ids: Sequence[int]


class KVManager:
    """Page tables by slot over one pool.

    Life of a request: `match`, `admit` when it takes a slot, `reserve` before each step that
    needs room, `commit` after it, `leave` at the end.  `leave` returns the pages, which the
    caller gives back to the pool once no step in flight can touch them.
    """

    def __init__(
        self,
        plan: CachePlan,
        num_slots: int,
        identity: str,
        managers: Iterable[CacheManagerType],
        caching: bool,
    ) -> None:
        managers = tuple(managers)
        self.plan = plan
        self.page_tokens = plan.groups[0].page_tokens
        self.pool = PagePool(plan.num_pages)
        self.caching = caching
        self.hasher = PageHasher(identity, self.page_tokens)
        self._groups = [(g.spec, manager_for(g.spec, managers)) for g in plan.groups]
        shape = (len(plan.groups), num_slots, plan.max_pages_per_request)
        self.tables = np.zeros(shape, np.int32)
        # Groups grow together: all pages have the same number of tokens.
        self.held = np.zeros(num_slots, np.int64)
        self.hashed = np.zeros(num_slots, np.int64)
        self._tags = [bytes([index]) for index in range(len(plan.groups))]

    @property
    def num_groups(self) -> int:
        return len(self._groups)

    def match(self, request: Request, limit: int) -> Match:
        """The longest prefix, of at most `limit` tokens, that the cache holds."""
        count = limit // self.page_tokens
        if not self.caching or count <= 0:
            return Match(0, ((),) * self.num_groups)
        hashes = self.hasher.extend(request, request.tokens, count)[:count]
        found = [[self.pool.find(h + tag) for h in hashes] for tag in self._tags]
        # Each group may shorten the prefix; repeat until all agree.
        hit, before = count, -1
        while hit != before:
            before = hit
            for (spec, manager), pages in zip(self._groups, found, strict=True):
                present = [page is not None for page in pages[:hit]]
                hit = min(hit, manager.longest_hit(present, self.page_tokens, spec))
        reused = tuple(tuple(p or 0 for p in group[:hit]) for group in found)
        return Match(hit * self.page_tokens, reused)

    def pages_for(self, tokens: int) -> int:
        """Table entries that `tokens` tokens need, per group."""
        return -(-tokens // self.page_tokens)

    def fits(self, match: Match, tokens: int) -> bool:
        """Whether a new request with this match could hold `tokens` tokens now."""
        have = match.tokens // self.page_tokens
        fresh = max(self.pages_for(tokens) - have, 0) * self.num_groups
        reused = sum(self.pool.num_unreferenced(pages) for pages in match.pages)
        return fresh + reused <= self.pool.num_free

    def admit(self, slot: int, match: Match) -> None:
        """`slot` starts with the matched pages."""
        count = match.tokens // self.page_tokens
        for group, pages in enumerate(match.pages):
            self.pool.acquire(pages)
            self.tables[group, slot, :count] = pages
        self.held[slot] = self.hashed[slot] = count

    def reserve(self, slot: int, tokens: int) -> list[Growth] | None:
        """Room for `tokens` tokens altogether; None, without effect, if pages are lacking."""
        start = int(self.held[slot])
        count = self.pages_for(tokens) - start
        if count <= 0:
            return []
        if count * self.num_groups > self.pool.num_free:
            return None
        growths = []
        for group in range(self.num_groups):
            ids = self.pool.allocate(count)
            self.tables[group, slot, start : start + count] = ids
            growths.append(Growth(group, slot, start, ids))
        self.held[slot] = start + count
        return growths

    def commit(self, request: Request, slot: int, tokens: I32, confirmed: int) -> None:
        """The first `confirmed` tokens are in the cache for certain: full pages get names."""
        first, last = int(self.hashed[slot]), confirmed // self.page_tokens
        if not self.caching or last <= first:
            return
        hashes = self.hasher.extend(request, tokens, last)
        for group, tag in enumerate(self._tags):
            ids = self.tables[group, slot, first:last].tolist()
            for page, name in zip(ids, hashes[first:last], strict=True):
                self.pool.store(page, name + tag)
        self.hashed[slot] = last

    def leave(self, slot: int) -> list[int]:
        """Take all pages from `slot`.  Last pages first, so that a prefix is evicted last."""
        count = int(self.held[slot])
        self.held[slot] = self.hashed[slot] = 0
        pages: list[int] = self.tables[:, slot, :count][:, ::-1].T.ravel().tolist()
        return pages

    def invalidate(self, pages: Iterable[int]) -> list[int]:
        """The content of `pages` was lost: nobody hits them any more.  Returns the slots that
        read them and must compute again; what lies before stays good and can be hit."""
        lost = np.array(sorted(pages), np.int32)
        self.pool.forget(lost.tolist())
        return [
            slot
            for slot in np.flatnonzero(self.held).tolist()
            if np.isin(self.tables[:, slot, : self.held[slot]], lost).any()
        ]

    def clear(self) -> None:
        """Forget every cached prefix; pages in use stay in use."""
        self.pool.forget_all()

    def check_integrity(self, outside: Iterable[int]) -> None:
        """`outside`: pages that left their slots and were not given back yet."""
        references: dict[int, int] = {}
        for slot in np.flatnonzero(self.held).tolist():
            for page in self.tables[:, slot, : self.held[slot]].ravel().tolist():
                references[page] = references.get(page, 0) + 1
        for page in outside:
            references[page] = references.get(page, 0) + 1
        references.pop(0, None)
        self.pool.check_integrity(references)
