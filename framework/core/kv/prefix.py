"""The prefix cache: which pages of a request exist already, and naming those that become
full."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from framework.contracts.messages import KVEvent
from framework.core.kv.events import EventLog
from framework.core.kv.hashing import parts_of
from framework.core.kv.pages import NULL_PAGE
from framework.plugins.blame import unfit

if TYPE_CHECKING:
    from framework.contracts.kv_cache_spec import CacheManagerType
    from framework.contracts.step import I32, CacheGroup
    from framework.core.kv.hashing import PageHasher
    from framework.core.kv.pages import PagePool
    from framework.core.request import Request


_GROUP_BYTES = 4  # there may be as many groups as layers
_FIRST_GROUP = bytes(_GROUP_BYTES)


def key_of(name: bytes, group: int) -> bytes:
    """What the page of this name is found under in `group`."""
    return name + group.to_bytes(_GROUP_BYTES, "little")


@dataclass(frozen=True, slots=True)
class Match:
    """Pages found in the prefix cache, per group, and the tokens that they hold.  A page that
    the group does not need any more stands as the null page; those end before page `cuts`."""

    tokens: int
    pages: tuple[tuple[int, ...], ...]
    cuts: tuple[int, ...]


class PrefixIndex:
    """Names of pages over one pool.  Its unit is the shortest page.

    events: what was stored, removed and cleared since they were last taken; None keeps none.
    collisions: names that were found with other contents than they were made from.
    plain: one group that keeps all its pages, and no events.
    """

    def __init__(
        self,
        groups: Sequence[CacheGroup],
        managers: Sequence[CacheManagerType],
        pool: PagePool,
        hasher: PageHasher,
        keep_events: bool,
    ) -> None:
        self._pool, self.hasher = pool, hasher
        self._nothing = Match(0, ((),) * len(groups), (0,) * len(groups))
        self._groups = [
            (index, group, manager, group.page_tokens // hasher.unit)
            for index, (group, manager) in enumerate(zip(groups, managers, strict=True))
            if not manager.by_encoder
        ]
        self._count = len(groups)
        self._unbroken = all(manager.keeps_all for _, _, manager, _ in self._groups)
        # All groups must be able to end at the same token.
        self.step = math.lcm(*(group.page_tokens for _, group, _, _ in self._groups))
        self.collisions = 0
        self.events = EventLog() if keep_events else None
        if keep_events:
            pool.on_removed = self._removed
        self.plain = self._unbroken and len(self._groups) == len(groups) == 1 and not keep_events

    def match(self, request: Request, limit: int) -> Match:
        """The longest prefix, of at most `limit` tokens, that every group can take over.

        Raises PluginError if a cache manager fails.
        """
        hit = limit // self.step * self.step
        if hit <= 0 or not self._groups:  # no page follows its tokens: nothing of them is kept
            return self._nothing
        found = [
            self._look_up(request, index, hit // size, width)
            for index, width, size in (
                (index, width, group.page_tokens) for index, group, _, width in self._groups
            )
        ]
        if self._unbroken and any(pages[0] is None for pages in found):
            return self._nothing
        # Each group may shorten the prefix; repeat until all agree.
        before = -1
        while hit != before:
            before = hit
            for (_, group, manager, _), pages in zip(self._groups, found, strict=True):
                present = [page is not None for page in pages[: hit // group.page_tokens]]
                most = manager.longest_hit(present, group.page_tokens, group.spec)
                hit = min(hit, most * group.page_tokens) // self.step * self.step
        if hit == 0:
            return self._nothing
        return self._kept(found, hit)

    def _kept(self, found: Sequence[Sequence[int | None]], hit: int) -> Match:
        """Pages up to `hit`, without those that are not read any more."""
        pages: list[tuple[int, ...]] = [()] * self._count
        cuts = [0] * self._count
        for (index, group, manager, _), own in zip(self._groups, found, strict=True):
            start, stop = 0, 0
            if not manager.keeps_all:
                start, stop = manager.droppable(hit, group.page_tokens, group.spec)
            kept = [
                NULL_PAGE if start <= place < stop else page
                for place, page in enumerate(own[: hit // group.page_tokens])
            ]
            if None in kept:
                raise unfit(
                    manager,
                    "took a hit for whole of which a page is lacking that it does not drop",
                    f"a longest_hit of at most {kept.index(None)} pages, or that page droppable",
                    f"a hit of {len(kept)} pages, droppable from {start} to {stop}",
                )
            pages[index] = tuple(page for page in kept if page is not None)
            cuts[index] = stop
        return Match(hit, tuple(pages), tuple(cuts))

    def _look_up(self, request: Request, group: int, pages: int, width: int) -> list[int | None]:
        """The place of each page; where a hit is an unbroken run, up to the first miss only.

        Hashes twice as far each time: what nobody asks for is hashed when its pages are named,
        so that a long new prompt does not hold up the step in which it starts.
        """
        found: list[int | None] = [None] * pages
        hashes = request.hashes
        for page in range(pages):
            last = (page + 1) * width
            if len(hashes) < last:
                self.hasher.extend(request, request.tokens, min(2 * last, pages * width))
            place = self._find(request, hashes, group, page, width)
            found[page] = place
            if place is None and self._unbroken:
                break
        return found

    def _find(
        self, request: Request, hashes: Sequence[bytes], group: int, page: int, width: int
    ) -> int | None:
        last = (page + 1) * width
        place = self._pool.find(key_of(hashes[last - 1], group))
        if place is None:
            return None
        if self._pool.holds(place, self._content(request, request.tokens, page, width)):
            return place
        self.collisions += 1
        return None

    def _content(self, request: Request, tokens: I32, page: int, width: int) -> bytes:
        """What a page's name is made from: the name before it, and its tokens."""
        unit = page * width
        before = request.hashes[unit - 1] if unit else self.hasher.start(request)
        size = width * self.hasher.unit
        part = tokens[page * size : (page + 1) * size]
        return before + part.astype("<i4", copy=False).tobytes()

    def _name_run(self, request: Request, tokens: I32, table: I32, first: int, last: int) -> None:
        """Name pages first .. last - 1 of the only group, hashing each on the way."""
        if last <= first:
            return
        size = self.step
        if len(request.hashes) < first:
            self.hasher.extend(request, tokens, first)
        parts = parts_of(tokens[first * size : last * size], size)
        units, places = range(first, last), table[first:last].tolist()
        self.name_next([request] * len(units), units, parts, places)

    def name_next(
        self,
        requests: Sequence[Request],
        units: Sequence[int],
        parts: Sequence[bytes],
        places: Sequence[int],
    ) -> None:
        """Name one page of one unit of each request: unit units[i], whose tokens are parts[i],
        lies in page places[i] of group 0."""
        self._pool.named()
        hasher, store = self.hasher, self._pool.store
        for request, unit, part, place in zip(requests, units, parts, places, strict=True):
            hashes = request.hashes
            before = hashes[unit - 1] if unit else hasher.start(request)
            if len(hashes) > unit:
                name = hashes[unit]
            else:
                chain = request.chain or hasher.chain_of(request)
                chain.update(part)
                name = chain.digest()
                hashes.append(name)
            store(place, name + _FIRST_GROUP, before + part)

    def name(
        self, request: Request, tokens: I32, tables: Sequence[I32], first: int, confirmed: int
    ) -> None:
        """Name the pages that end in (first, confirmed]: tokens that are in the cache.

        tables: page ids of the request, one row per group.
        """
        if self.plain:
            self._name_run(request, tokens, tables[0], first // self.step, confirmed // self.step)
            return
        self._pool.named()
        hashes = self.hasher.extend(request, tokens, confirmed // self.hasher.unit)
        for index, group, _, width in self._groups:
            size = group.page_tokens
            for page in range(first // size, confirmed // size):
                place = int(tables[index][page])
                if place == 0:
                    continue
                name = hashes[(page + 1) * width - 1]
                content = self._content(request, tokens, page, width)
                stored = self._pool.store(place, key_of(name, index), content)
                if stored and self.events is not None:
                    unit = page * width
                    self.events.add(
                        KVEvent(
                            kind="stored",
                            group=index,
                            name=name,
                            parent=request.hashes[unit - 1] if unit else None,
                            tokens=tuple(tokens[page * size : (page + 1) * size].tolist()),
                        )
                    )

    def new_epoch(self) -> None:
        """Contents from before are worth nothing: no page is found, and names have another root.
        Names that are kept with requests are the caller's to forget."""
        self.hasher.new_epoch()
        self.clear()

    def clear(self) -> None:
        """Forget every name; pages in use stay in use."""
        keep, self._pool.on_removed = self._pool.on_removed, None
        self._pool.forget_all()
        self._pool.on_removed = keep
        if self.events is not None:
            self.events.add(KVEvent(kind="cleared"))

    def take_events(self) -> list[KVEvent]:
        """What happened since the last call, in order."""
        return [] if self.events is None else self.events.take()

    def _removed(self, key: bytes) -> None:
        assert self.events is not None
        group = int.from_bytes(key[-_GROUP_BYTES:], "little")
        self.events.add(KVEvent(kind="removed", group=group, name=key[:-_GROUP_BYTES]))
