"""What a real cache would hold, as fingerprints, so that every read can be checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from framework.contracts.kv_cache_spec import CacheManagerType, KVCacheSpec
from framework.contracts.step import I32, CacheGroup, CachePlan, KvOp, PageUpdates
from framework.core.kv.managers import BUILT_IN, manager_for
from framework.errors import IntegrityError

LOST = -1
"""Stands for what was lost, and for what was computed from it."""


class FakeCache:
    """Pages by id, each a mapping of offset -> fingerprint; page tables by slot and group.

    A page that carries a state holds one fingerprint, that after its last token.
    managers: types beside the built-in ones.
    """

    def __init__(self, plan: CachePlan, managers: Sequence[CacheManagerType] = ()) -> None:
        self.plan = plan
        known = (*(make() for make in BUILT_IN), *managers)
        self._groups = [(group, manager_for(group.spec, known)) for group in plan.groups]
        self._pages: list[dict[int, int]] = [{} for _ in range(plan.num_pages)]
        self.tables: dict[int, list[list[int]]] = {}

    def apply(self, updates: Sequence[PageUpdates], ops: Sequence[KvOp]) -> None:
        """Change page tables, then whole pages, as a plan says."""
        for group, update in enumerate(updates):
            at = 0
            for slot, start, count, replace in zip(
                update.slots.tolist(),
                update.starts.tolist(),
                update.counts.tolist(),
                update.replace.tolist(),
                strict=True,
            ):
                tables = self.tables.setdefault(slot, [[] for _ in updates])
                if replace:
                    tables[group] = []
                if start > len(tables[group]):
                    raise IntegrityError("a page table has a gap", found=(slot, group))
                ids = update.ids[at : at + count].tolist()
                tables[group][start : start + count] = ids
                at += count
        for op in ops:
            source = self._pages[op.source] if op.kind == "copy" else {}
            self._pages[op.target] = dict(source)

    def fill(self, slot: int, prints: Sequence[int], start: int, stop: int) -> None:
        """Positions [start, stop) of a slot arrive from elsewhere, as far as there are pages for
        them; prints: as in `step`."""
        for (group, manager), table in zip(self._groups, self.tables[slot], strict=True):
            if manager.by_encoder:
                continue
            for position in range(start, min(stop, len(table) * group.page_tokens)):
                page, offset = divmod(position, group.page_tokens)
                offset = 0 if manager.carries_state else offset
                self._pages[table[page]][offset] = prints[position + 1]

    def encode(self, slot: int, content: int, states: int) -> None:
        """An encoder ran for the request in `slot`, and left so many states."""
        for (group, manager), table in zip(self._groups, self.tables[slot], strict=True):
            if not manager.by_encoder:
                continue
            kept = states if group.spec.page_bytes(group.page_tokens) else 0
            if len(table) * group.page_tokens < kept or 0 in table:
                raise IntegrityError(
                    f"slot {slot} lacks pages for {states} states of an encoder", found=table
                )
            for page in table:
                self._pages[page] = {0: content}

    def lose(self, pages: Sequence[int]) -> I32:
        """What these pages hold is gone; returns them as an array."""
        for page in pages:
            self._pages[page] = dict.fromkeys(self._pages[page], LOST)
        return np.array(pages, np.int32)

    def step(self, slot: int, prints: Sequence[int], computed: int, new: int, content: int) -> bool:
        """Read what `new` tokens from position `computed` on read, then write them.

        prints: fingerprint after each prefix, so that prints[p + 1] belongs to position p.
        False if something of what was read is lost, and with it what is written.
        """
        sound = True
        for (group, manager), table in zip(self._groups, self.tables[slot], strict=True):
            if manager.by_encoder:
                sound &= self._read_encoder(slot, table, content)
            elif manager.carries_state:
                sound &= self._read_state(slot, group, table, prints, computed, new)
            else:
                sound &= self._attend(slot, group, table, prints, computed, new)
        written = prints if sound else [LOST] * len(prints)
        for (group, manager), table in zip(self._groups, self.tables[slot], strict=True):
            for position in () if manager.by_encoder else range(computed, computed + new):
                page, offset = divmod(position, group.page_tokens)
                offset = 0 if manager.carries_state else offset
                self._owned(slot, table, page)[offset] = written[position + 1]
        return sound

    def _read_encoder(self, slot: int, table: Sequence[int], content: int) -> bool:
        found = {self._pages[page].get(0) for page in table}
        if not found <= {content, LOST}:
            raise IntegrityError("the encoder's states of a request are wrong", found=slot)
        return LOST not in found

    def _read_state(
        self,
        slot: int,
        group: CacheGroup,
        table: Sequence[int],
        prints: Sequence[int],
        computed: int,
        new: int,
    ) -> bool:
        page = computed // group.page_tokens
        if (computed + new - 1) // group.page_tokens != page:
            raise IntegrityError("a step runs past the end of a page that keeps a state")
        found = self._owned(slot, table, page).get(0, prints[0])
        if found not in (prints[computed], LOST):
            raise IntegrityError(f"the state of slot {slot} is wrong at {computed}")
        return found != LOST

    def _attend(
        self,
        slot: int,
        group: CacheGroup,
        table: Sequence[int],
        prints: Sequence[int],
        computed: int,
        new: int,
    ) -> bool:
        sound = True
        for position in _read(group.spec, computed, new):
            page, offset = divmod(position, group.page_tokens)
            found = self._owned(slot, table, page).get(offset)
            if found not in (prints[position + 1], LOST):
                raise IntegrityError(
                    f"the cache of slot {slot}, layers {group.layers}, is wrong at {position}",
                    expected=prints[position + 1],
                    found=found,
                )
            sound &= found != LOST
        return sound

    def _owned(self, slot: int, table: Sequence[int], page: int) -> dict[int, int]:
        if page >= len(table) or table[page] == 0:
            raise IntegrityError("a page that is read or written is not held", found=(slot, page))
        return self._pages[table[page]]


def _read(spec: KVCacheSpec, computed: int, new: int) -> Iterator[int]:
    """Positions before `computed` that one of the `new` tokens from there on reads, each once."""
    spans = sorted(
        (start, min(stop, computed))
        for position in range(computed, computed + new)
        for span in spec.reads(position)
        for start, stop in _runs(span)
    )
    end = 0
    for start, stop in spans:
        yield from range(max(start, end), stop)
        end = max(end, stop)


def _runs(span: range) -> Iterator[tuple[int, int]]:
    """[start, stop) of neighbours in it."""
    if span.step == 1:
        yield span.start, span.stop
    else:
        yield from ((position, position + 1) for position in span)
