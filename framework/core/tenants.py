"""Tenants by index, so that a policy can count by arrays; bounded, however many there were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

IDLE_TENANTS = 1024


class Tenants(Sequence[str]):
    """Names by index, for policies; only the core changes them.

    An index belongs to one name as long as the tenant has a request.  Of tenants without one
    the last IDLE_TENANTS keep theirs, and those of others are given to newcomers.
    """

    def __init__(self, idle: int = IDLE_TENANTS) -> None:
        self._most_idle = idle
        self._names: list[str] = []
        self._requests: list[int] = []
        self._index: dict[str, int] = {}
        self._idle: dict[int, None] = {}  # in the order in which they became so

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self._names[index]

    def enter(self, name: str) -> int:
        """A request of this tenant comes; the tenant's index."""
        index = self._index.get(name)
        if index is None:
            index = self._place(name)
        self._idle.pop(index, None)
        self._requests[index] += 1
        return index

    def _place(self, name: str) -> int:
        if len(self._idle) >= self._most_idle:
            index = next(iter(self._idle))
            del self._index[self._names[index]]
            self._names[index] = name
        else:
            index = len(self._names)
            self._names.append(name)
            self._requests.append(0)
        self._index[name] = index
        return index

    def leave(self, index: int) -> None:
        """A request of this tenant has ended."""
        self._requests[index] -= 1
        if not self._requests[index]:
            self._idle[index] = None
