"""The KV manager: which pages each slot owns, what may be shared, what can be given back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from framework.contracts.step import KvOp
from framework.core.kv.allocation import NOTHING, Allocation, Counts, Growth, PageBlock
from framework.core.kv.borders import Borders
from framework.core.kv.encoder import EncoderPages
from framework.core.kv.groups import Needs
from framework.core.kv.hashing import PageHasher, choose_hash, parts_of
from framework.core.kv.managers import manager_for
from framework.core.kv.pages import NULL_PAGE, PagePool
from framework.core.kv.pins import Pins
from framework.core.kv.prefix import Match, PrefixIndex
from framework.core.kv.trimming import Trimming
from framework.errors import PluginError
from framework.plugins.blame import unfit

if TYPE_CHECKING:
    from framework.contracts.kv_cache_spec import CacheManagerType
    from framework.contracts.step import I32, CachePlan
    from framework.core.config import CoreConfig
    from framework.core.request import Request

ENDLESS = np.iinfo(np.int64).max


class KVManager:
    """Page tables by slot over one pool.

    Life of a request: `match`, `admit` when it takes a slot, `reserve` before each step that
    needs room, `commit` after it, `leave` at the end, which returns the pages; the caller gives
    them back to the pool once no step in flight can touch them.
    room: int64 [slots], tokens for which a slot has pages in every group.
    seen: int64 [slots], confirmed tokens for which `commit` was called.
    """

    def __init__(
        self, plan: CachePlan, config: CoreConfig, managers: Iterable[CacheManagerType]
    ) -> None:
        managers = tuple(managers)
        self.plan = plan
        self.pool = PagePool(plan.num_pages)
        self.groups = plan.groups
        self.managers = [manager_for(group.spec, managers) for group in plan.groups]
        self.unit = min(group.page_tokens for group in plan.groups)
        new_hash, root = choose_hash(config.prefix_hash)
        hasher = PageHasher(config.identity, self.unit, new_hash, root)
        self.prefix = PrefixIndex(
            plan.groups, self.managers, self.pool, hasher, config.enable_kv_events
        )
        self.caching = config.enable_prefix_caching
        slots = config.max_num_seqs
        self.tables = np.zeros((len(plan.groups), slots, plan.max_pages_per_request), np.int32)
        self.held = np.zeros((len(plan.groups), slots), np.int64)
        self.room = np.zeros(slots, np.int64)
        self.seen = np.zeros(slots, np.int64)
        self.trimming = Trimming(plan.groups, self.managers, self.pool, self.tables, self.held)
        self.pins = Pins(self.pool)
        self.borders = Borders(plan.groups, managers)
        self._needs = Needs(plan.groups, self.borders.in_flight(config))
        self.encoder = EncoderPages(plan.groups, self.managers, self._needs)

    @property
    def num_groups(self) -> int:
        return len(self.groups)

    # Prefixes

    def match(self, request: Request, limit: int) -> Match:
        """The longest prefix, of at most `limit` tokens, that the cache holds."""
        return self.prefix.match(request, limit if self.caching else 0)

    def fits(self, match: Match, tokens: int, encoder: int, spare: int) -> bool:
        """Whether a new request with this match could hold `tokens` tokens now, and `spare`
        pages would still be free."""
        fresh = 0
        for index, pages in enumerate(match.pages):
            fresh += max(self._entries(index, tokens, encoder) - len(pages), 0)
        reused = sum(1 for pages in match.pages for page in pages if not self.pool.references[page])
        return fresh + reused + spare <= self.pool.num_free

    def _entries(self, group: int, tokens: int, encoder: int) -> int:
        """Entries of the group's page table that so many tokens need."""
        own = self.groups[group]
        if self.managers[group].by_encoder:
            return self.encoder.of(group, encoder)
        return -(-tokens // own.page_tokens)

    def whole_pages(self, tokens: int, encoder: int) -> int:
        """Pages for `tokens` tokens of which none was given back yet."""
        return sum(self._entries(group, tokens, encoder) for group in range(self.num_groups))

    def most_pages(self, tokens: int) -> int:
        """Pages that a request of `tokens` tokens can ever hold at one time.  Raises PluginError
        for more than there are, which the longest request does not need."""
        counts = [self._needs.of(group, tokens) for group in self.groups]
        if sum(counts) >= self.pool.num_pages:
            most = max(counts)
            spec = self.groups[counts.index(most)].spec
            expected = f"no more for {tokens} tokens than for the longest request"
            raise unfit(spec, "counts more pages for less", expected, most)
        return sum(counts)

    # Slots

    def admit(self, slot: int, match: Match, encoder: int) -> None:
        """`slot` starts with the matched pages, and with those for its encoder's tokens."""
        for pages in match.pages:  # all before any is allocated, which would take them
            self.pool.acquire(page for page in pages if page != NULL_PAGE)
        for group, pages in enumerate(match.pages):
            if self.managers[group].by_encoder:
                pages = tuple(self.pool.allocate(self._entries(group, 0, encoder)))
            self.tables[group, slot, : len(pages)] = pages
            self.held[group, slot] = len(pages)
        self.trimming.start(slot, match.cuts)
        self.seen[slot] = match.tokens
        self._set_room(slot)

    def _set_room(self, slot: int) -> None:
        self.room[slot] = min(
            ENDLESS if manager.by_encoder else int(self.held[index, slot]) * group.page_tokens
            for index, (group, manager) in enumerate(zip(self.groups, self.managers, strict=True))
        )

    def lacking(self, slot: int, tokens: int) -> int:
        """Pages that `slot` lacks for `tokens` tokens altogether."""
        return sum(
            max(self._entries(group, tokens, 0) - int(self.held[group, slot]), 0)
            for group, manager in enumerate(self.managers)
            if not manager.by_encoder
        )

    def reserve(self, slot: int, tokens: int) -> Allocation | None:
        """Room for `tokens` tokens altogether; None, without effect, if pages are lacking."""
        if tokens <= self.room[slot]:
            return NOTHING
        if self.lacking(slot, tokens) > self.pool.num_free:
            return None
        growths: list[Growth] = []
        ops: list[KvOp] = []
        for group, manager in enumerate(self.managers):
            start = int(self.held[group, slot])
            count = self._entries(group, tokens, 0) - start
            if manager.by_encoder or count <= 0:
                continue
            ids = self.pool.allocate(count)
            self.tables[group, slot, start : start + count] = ids
            self.held[group, slot] = start + count
            growths.append(Growth(group, slot, start, ids))
            if manager.carries_state:
                source = int(self.tables[group, slot, start - 1]) if start else NULL_PAGE
                ops.append(KvOp("copy" if start else "zero", group, source, ids[0]))
        self._set_room(slot)
        return Allocation(growths, ops)

    def reserve_many(self, slots: Counts, tokens: Counts) -> list[PageBlock] | None:
        """Room for tokens[i] tokens altogether of slots[i], by array operations; None, without
        effect, if pages are lacking or an operation on pages would be needed."""
        if self.borders.tokens is not None:
            return None
        grouped = []
        for index, (group, manager) in enumerate(zip(self.groups, self.managers, strict=True)):
            if manager.by_encoder:
                continue
            start = self.held[index, slots]
            need = (tokens + (group.page_tokens - 1)) // group.page_tokens - start
            if need.min() < 1:
                some = need > 0
                grouped.append((index, slots[some], start[some], need[some]))
            else:
                grouped.append((index, slots, start, need))
        totals = [int(need.sum()) for _, _, _, need in grouped]
        if sum(totals) > self.pool.num_free:
            return None
        blocks = []
        for (index, own, start, need), total in zip(grouped, totals, strict=True):
            if not total:
                continue
            ids = np.array(self.pool.allocate(total), np.int32)
            if total == len(own):
                self.tables[index, own, start] = ids
            else:
                within = np.arange(total) - np.repeat(np.cumsum(need) - need, need)
                self.tables[index, np.repeat(own, need), np.repeat(start, need) + within] = ids
            self.held[index, own] = start + need
            blocks.append(PageBlock(index, own, start, need, ids))
        room = np.full(len(slots), ENDLESS)
        for index, (group, manager) in enumerate(zip(self.groups, self.managers, strict=True)):
            if not manager.by_encoder:
                room = np.minimum(room, self.held[index, slots] * group.page_tokens)
        self.room[slots] = room
        return blocks

    def commit_many(
        self, requests: Sequence[Request], slots: Counts, tokens: I32, confirmed: Counts
    ) -> dict[int, PluginError]:
        """`commit` of several requests.  tokens: all slots' known ids, [slots, length].

        Returns the slots for which a cache manager failed, as if they had not been committed.
        """
        unit = self.unit
        first = self.seen[slots] // unit
        alike = self.caching and self.prefix.plain
        if not alike or (confirmed // unit - first != 1).any():
            failed: dict[int, PluginError] = {}
            for request, slot, count in zip(
                requests, slots.tolist(), confirmed.tolist(), strict=True
            ):
                try:
                    self.commit(request, slot, tokens[slot], count)
                except PluginError as error:
                    failed[slot] = error
            return failed
        columns = (first * unit)[:, None] + np.arange(unit)
        parts = parts_of(tokens[slots[:, None], columns], unit)
        places = self.tables[0, slots, first].tolist()
        self.prefix.name_next(requests, first.tolist(), parts, places)
        self.seen[slots] = confirmed
        return {}

    def commit(self, request: Request, slot: int, tokens: I32, confirmed: int) -> None:
        """The first `confirmed` tokens are in the cache for certain: full pages get names,
        pages that are read no more are given back.  Raises PluginError."""
        if self.caching:
            self.prefix.name(request, tokens, [*self.tables[:, slot]], self.seen[slot], confirmed)
        self.trimming.trim(slot, confirmed)
        self.seen[slot] = confirmed

    def arrive(self, request: Request, slot: int, tokens: I32, computed: int) -> None:
        """`commit` of what came from elsewhere.  Pages behind it, reserved for more, are given
        back, so that a state goes on from its newest page.  Raises PluginError."""
        for group, manager in enumerate(self.managers):
            keep = self._entries(group, computed, 0)
            if not manager.by_encoder and keep < self.held[group, slot]:
                self.pool.release(self.tables[group, slot, keep : self.held[group, slot]].tolist())
                self.held[group, slot] = keep
        self._set_room(slot)
        self.commit(request, slot, tokens, computed)

    def leave(self, slot: int) -> list[int]:
        """Take all pages from `slot`.  Last pages first, so that a prefix is evicted last."""
        pages: list[int] = []
        for group in range(self.num_groups):
            row = self.tables[group, slot, : self.held[group, slot]]
            pages += row[row != NULL_PAGE][::-1].tolist()
        self.held[:, slot] = self.room[slot] = self.seen[slot] = 0
        self.trimming.leave(slot)
        return pages

    def invalidate(self, pages: Iterable[int]) -> list[int]:
        """The content of `pages` was lost: nobody hits them any more.  Returns the slots that
        read them and must compute again; what lies before stays good and can be hit."""
        lost = np.array(sorted(set(pages) - {NULL_PAGE}), np.int32)
        self.pool.forget(lost.tolist())
        held = np.flatnonzero(self.held.any(axis=0)).tolist()
        return [slot for slot in held if self._reads(slot, lost)]

    def _reads(self, slot: int, pages: I32) -> bool:
        tables = zip(self.tables[:, slot], self.held[:, slot].tolist(), strict=True)
        return any(np.isin(table[:count], pages).any() for table, count in tables)

    def check_integrity(self, outside: Iterable[int]) -> None:
        """`outside`: pages that left their slots and were not given back yet."""
        owners: list[Iterable[int]] = [outside, *self.pins.pages()]
        for group in range(self.num_groups):
            for slot in np.flatnonzero(self.held[group]).tolist():
                owners.append(self.tables[group, slot, : self.held[group, slot]].tolist())
        self.pool.check_integrity(owners)
        self.trimming.check_integrity()
