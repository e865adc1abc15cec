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
        # Of one name they take turns: an odd number of them does what the first does, an even one
        # nothing.  It stays where the first was, so that a page is told of after what lies before
        # it, which was there when it was stored.
        cleared: list[KVEvent] = []
        first: dict[tuple[int, bytes], KVEvent] = {}
        odd: set[tuple[int, bytes]] = set()
        for event in self._events:
            if event.kind == "cleared":
                cleared = [event]
                first.clear()
                odd.clear()
                continue
            key = event.group, event.name
            first.setdefault(key, event)
            odd ^= {key}
        self._events = cleared + [event for key, event in first.items() if key in odd]
        self._fold_at = max(2 * len(self._events), LEAST)
