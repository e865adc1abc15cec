"""What changed in the prefix cache, kept until somebody takes it."""

from __future__ import annotations

from framework.contracts.messages import KVEvent

LEAST = 2**16
"""Events that are kept whatever they are: who takes them now and then gets every one."""


class EventLog:
    """In order.  Where nobody takes the events they do not grow for ever: told is then what makes
    the same of the same cache, without what came and went in between.  So no more are kept than
    LEAST, or a few for each page.
    """

    def __init__(self) -> None:
        self._events: list[KVEvent] = []
        self._fold_at = LEAST

    def __len__(self) -> int:
        return len(self._events)

    def add(self, event: KVEvent) -> None:
        """The newest."""
        self._events.append(event)
        if len(self._events) >= self._fold_at:
            self._fold()

    def take(self) -> list[KVEvent]:
        """Those since the last call."""
        events, self._events, self._fold_at = self._events, [], LEAST
        return events

    def _fold(self) -> None:
        """Leave out what a later event undoes: all before the cache was cleared, and pages that
        were stored and removed."""
        kept: dict[int, KVEvent] = {}
        stored: dict[tuple[int, bytes], int] = {}
        for place, event in enumerate(self._events):
            key = event.group, event.name
            if event.kind == "cleared":
                kept.clear()
                stored.clear()
            elif event.kind == "removed" and key in stored:
                del kept[stored.pop(key)]
                continue
            elif event.kind == "stored":
                stored[key] = place
            kept[place] = event
        self._events = list(kept.values())
        self._fold_at = max(2 * len(kept), LEAST)
