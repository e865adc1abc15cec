"""Which adapters are computed now: at most so many different ones.

Requests of an adapter that has its turn join it.  So that the others are not passed over for ever,
only so many may join while an adapter waits; then nobody joins, those that run end, and the adapter
that waits longest has the next turn.
"""

from __future__ import annotations

from collections.abc import Callable

PATIENCE = 64
"""Requests that may join the adapters of the turn while another adapter waits."""


class Turns:
    """most: different adapters at one time."""

    def __init__(self, most: int, patience: int = PATIENCE) -> None:
        self._most, self._patience = most, patience
        self._users: dict[int, set[str]] = {}
        self._waiting: dict[int, dict[str, int]] = {}  # adapter -> request -> its arrival
        self._joined = 0

    def take(self, adapter: int, request: str, arrival: int) -> bool:
        """Whether the request may run now; if not, it waits until `wake` says to ask again."""
        users = self._users.get(adapter, set())
        if request in users:
            return True
        if not self._may(adapter, arrival):
            self._waiting.setdefault(adapter, {})[request] = arrival
            return False
        self._not_waiting(adapter, request)
        if not users:
            self._joined = 0
        elif self._others(adapter):
            self._joined += 1
        self._users.setdefault(adapter, set()).add(request)
        return True

    def wake(self, adapter: int, arrival: int) -> Callable[[], bool]:
        """Whether it is worth asking again."""
        return lambda: self._may(adapter, arrival)

    def leave(self, adapter: int, request: str) -> None:
        """The request ended, or waits no more."""
        self._not_waiting(adapter, request)
        users = self._users.get(adapter)
        if users is not None:
            users.discard(request)
            if not users:
                del self._users[adapter]

    def _may(self, adapter: int, arrival: int) -> bool:
        if adapter in self._users:
            first = self._first(adapter)
            return first is None or self._joined < self._patience
        if len(self._users) >= self._most:
            return False
        first = self._first(adapter)
        return first is None or arrival < first or self._own_first(adapter) < first

    def _own_first(self, adapter: int) -> float:
        return min(self._waiting.get(adapter, {}).values(), default=float("inf"))

    def _first(self, but: int) -> float | None:
        """When the oldest request arrived that waits for a turn of another adapter than `but`."""
        return min(
            (
                arrival
                for adapter, requests in self._waiting.items()
                if adapter != but and adapter not in self._users
                for arrival in requests.values()
            ),
            default=None,
        )

    def _others(self, adapter: int) -> bool:
        return self._first(adapter) is not None

    def _not_waiting(self, adapter: int, request: str) -> None:
        requests = self._waiting.get(adapter)
        if requests is not None:
            requests.pop(request, None)
            if not requests:
                del self._waiting[adapter]
