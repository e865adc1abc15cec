"""Pages of running requests that are read no more, which are given back before the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from framework.core.kv.allocation import Counts, Growth
from framework.core.kv.pages import NULL_PAGE
from framework.errors import IntegrityError, PluginError

if TYPE_CHECKING:
    from framework.contracts.kv_cache_spec import CacheManagerType
    from framework.contracts.step import I32, CacheGroup
    from framework.core.kv.pages import PagePool


class Trimming:
    """tables: page ids, [groups, slots, pages]; held: how many of them, [groups, slots].

    tables[g, s]   |0 .... first |  cut ....... | held
                    kept (sinks)   null pages     read
    """

    def __init__(
        self,
        groups: Sequence[CacheGroup],
        managers: Sequence[CacheManagerType],
        pool: PagePool,
        tables: I32,
        held: Counts,
    ) -> None:
        self._groups = [
            (index, group, manager)
            for index, (group, manager) in enumerate(zip(groups, managers, strict=True))
            if not manager.keeps_all
        ]
        self._pool, self._tables, self._held = pool, tables, held
        self._cut = np.zeros_like(held)  # end of what was given back
        self._told: dict[int, list[Growth]] = {}

    @property
    def untold(self) -> bool:
        """Table entries became the null page, and no plan has told so yet."""
        return bool(self._told)

    def take(self) -> list[Growth]:
        """Table entries that became the null page since the last call."""
        found = [growth for growths in self._told.values() for growth in growths]
        self._told.clear()
        return found

    def start(self, slot: int, cuts: Sequence[int]) -> None:
        """A request takes the slot; its pages before cuts[group] were never taken."""
        self._cut[:, slot] = cuts

    def leave(self, slot: int) -> None:
        """The request leaves its slot, and takes its table along."""
        self._told.pop(slot, None)

    def trim(self, slot: int, confirmed: int) -> None:
        """Give back what no token from `confirmed` on reads.  Raises PluginError."""
        for index, group, manager in self._groups:
            start, stop = manager.droppable(confirmed, group.page_tokens, group.spec)
            start = max(start, int(self._cut[index, slot]))
            if start < stop:
                self._give_back(index, slot, start, stop)

    def _give_back(self, group: int, slot: int, start: int, stop: int) -> None:
        row = self._tables[group, slot]
        self._pool.release([page for page in row[start:stop].tolist() if page != NULL_PAGE])
        row[start:stop] = NULL_PAGE
        self._cut[group, slot] = stop
        null = [NULL_PAGE] * (stop - start)
        self._told.setdefault(slot, []).append(Growth(group, slot, start, null))

    def trim_all(self, slots: Counts, confirmed: Counts) -> None:
        """What became free since the requests last filled a page, for when pages are lacking.
        A manager that fails is asked again with the next page, and its request ends then."""
        if not self._groups:
            return
        for slot, count in zip(slots.tolist(), confirmed.tolist(), strict=True):
            try:
                self.trim(slot, count)
            except PluginError:
                continue

    def check_integrity(self) -> None:
        """What was given back is told of slots with a request only."""
        if any(not self._held[:, slot].any() for slot in self._told):
            raise IntegrityError("dropped pages are kept for a slot without a request")
