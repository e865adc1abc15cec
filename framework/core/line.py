"""The waiting line: sorted once where keys are fixed, by arrays in every step where they move.

MovingLine   row      0     1     2     3     4            columns of numbers, one per request
             request  r0    None  r2    r3    r4           None: left; cleared up at times
             order                2     0     4     3      rows as of the last `refresh`
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from framework.contracts.scheduling_policy import RequestArrays

if TYPE_CHECKING:
    from framework.contracts.scheduling_policy import SchedulingPolicy
    from framework.core.request import Request

_COLUMNS = ("arrival", "priority", "tenant", "prompt", "known", "limit")


class Line(ABC):
    """Requests in the order of (policy's key, arrival)."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __iter__(self) -> Iterator[Request]: ...

    @abstractmethod
    def add(self, request: Request, now: float) -> None:
        """At its place; where keys move, at the end until the next `refresh`."""

    @abstractmethod
    def remove(self, request: Request) -> None: ...

    @abstractmethod
    def first(self) -> Request | None: ...

    @abstractmethod
    def refresh(self, now: float) -> None:
        """Sort again, if keys move."""

    @property
    @abstractmethod
    def unsorted(self) -> bool:
        """`refresh` would have something to do."""


class FixedLine(Line):
    """A request whose key is fixed finds its place again after a preemption, ahead of all
    that came later."""

    def __init__(self, policy: SchedulingPolicy, tenants: Sequence[str]) -> None:
        self._policy, self._tenants = policy, tenants
        self._line: list[Request] = []
        self._new: dict[str, Request] = {}  # without a key; asked for together

    def __len__(self) -> int:
        return len(self._line) + len(self._new)

    def __iter__(self) -> Iterator[Request]:
        yield from self._line
        yield from self._new.values()

    def add(self, request: Request, now: float) -> None:
        if request.preempted:
            insort(self._line, request, key=_order)
        else:
            self._new[request.id] = request

    def remove(self, request: Request) -> None:
        line = self._line
        if line and line[0] is request:
            del line[0]
        elif self._new.pop(request.id, None) is None:
            # Not by a look at each: thousands may be aborted at one time.
            place = bisect_left(line, _order(request), key=_order)
            assert line[place] is request
            del line[place]

    def first(self) -> Request | None:
        return self._line[0] if self._line else None

    @property
    def unsorted(self) -> bool:
        return bool(self._new)

    def refresh(self, now: float) -> None:
        new, self._new = list(self._new.values()), {}
        if not new:
            return
        columns = _Columns(len(new))
        for row, request in enumerate(new):
            columns.put(row, request)
        keys = self._policy.keys(columns.view(np.arange(len(new)), now, self._tenants))
        for request, key in zip(new, keys.tolist(), strict=True):
            request.key = key
            insort(self._line, request, key=_order)


def _order(request: Request) -> tuple[float, int]:
    return request.key, request.arrival


class MovingLine(Line):
    """Numbers of the requests in columns, so that a step costs no look at any one of them."""

    def __init__(self, policy: SchedulingPolicy, tenants: Sequence[str]) -> None:
        self._policy, self._tenants = policy, tenants
        self._columns = _Columns(64)
        self._rows: list[Request | None] = []
        self._row_of: dict[str, int] = {}
        self._order: list[int] = []
        self._next = 0

    def __len__(self) -> int:
        return len(self._row_of)

    def __iter__(self) -> Iterator[Request]:
        return (request for request in self._rows if request is not None)

    def add(self, request: Request, now: float) -> None:
        row = len(self._rows)
        self._columns.put(row, request)
        self._rows.append(request)
        self._row_of[request.id] = row
        self._order.append(row)

    def remove(self, request: Request) -> None:
        row = self._row_of.pop(request.id)
        self._rows[row] = None
        self._columns.there[row] = False

    def first(self) -> Request | None:
        order, rows = self._order, self._rows
        while self._next < len(order):
            request = rows[order[self._next]]
            if request is not None:
                request.key = float(self._columns.key[order[self._next]])
                return request
            self._next += 1
        return None

    @property
    def unsorted(self) -> bool:
        return True

    def refresh(self, now: float) -> None:
        if len(self._rows) > 64 and len(self._rows) > 2 * len(self._row_of):
            self._clear_up()
        columns, self._next = self._columns, 0
        rows = np.flatnonzero(columns.there[: len(self._rows)])
        if not len(rows):
            self._order = []
            return
        keys = self._policy.keys(columns.view(rows, now, self._tenants))
        columns.key[rows] = keys
        self._order = rows[np.lexsort((columns.table[0, rows], keys))].tolist()

    def _clear_up(self) -> None:
        kept = [request for request in self._rows if request is not None]
        self._columns = _Columns(max(2 * len(kept), 64))
        self._rows, self._row_of, self._order = [], {}, []
        for request in kept:
            self.add(request, 0.0)


class _Columns:
    """table: int64 [columns, rows].  there: rows in use."""

    def __init__(self, rows: int) -> None:
        self.table = np.zeros((len(_COLUMNS), rows), np.int64)
        self.arrived_at = np.zeros(rows)
        self.key = np.zeros(rows)
        self.there = np.zeros(rows, np.bool_)

    def put(self, row: int, request: Request) -> None:
        if row == len(self.there):
            self.table = np.concatenate([self.table, np.zeros_like(self.table)], axis=1)
            self.arrived_at = np.concatenate([self.arrived_at, np.zeros_like(self.arrived_at)])
            self.key = np.concatenate([self.key, np.zeros_like(self.key)])
            self.there = np.concatenate([self.there, np.zeros_like(self.there)])
        entry = request.input
        self.table[:, row] = (
            request.arrival,
            entry.priority,
            request.tenant,
            request.num_prompt,
            len(request.tokens),
            entry.max_total,
        )
        self.arrived_at[row] = request.arrived_at
        self.key[row] = request.key
        self.there[row] = True

    def view(
        self, rows: npt.NDArray[np.int64], now: float, tenants: Sequence[str]
    ) -> RequestArrays:
        """What a policy sees."""
        own = dict(zip(_COLUMNS, self.table[:, rows], strict=True))
        return RequestArrays(
            **own,
            arrived_at=self.arrived_at[rows],
            computed=np.zeros(len(rows), np.int64),
            now=now,
            tenant_names=tenants,
        )
