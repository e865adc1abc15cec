"""Requests that do not run: those in line, and those that stand aside."""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from framework.contracts.scheduling_policy import RequestArrays
from framework.core.request import Request, Status

if TYPE_CHECKING:
    from framework.contracts.scheduling_policy import SchedulingPolicy


def request_arrays(
    requests: Sequence[Request], now: float, tenants: Sequence[str]
) -> RequestArrays:
    """The view a policy gets of requests without a slot."""

    def column(values: Iterator[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.fromiter(values, np.int64, len(requests))

    return RequestArrays(
        arrival=column(r.arrival for r in requests),
        arrived_at=np.fromiter((r.arrived_at for r in requests), np.float64, len(requests)),
        priority=column(r.input.priority for r in requests),
        tenant=column(r.tenant for r in requests),
        prompt=column(r.num_prompt for r in requests),
        known=column(len(r.tokens) for r in requests),
        limit=column(r.input.max_total for r in requests),
        computed=np.zeros(len(requests), np.int64),
        now=now,
        tenant_names=tenants,
    )


def _order(request: Request) -> tuple[float, int]:
    return request.key, request.arrival


class WaitingQueue:
    """The line, sorted by (policy's key, arrival), and those who wait for something else.

    A request whose key is fixed finds its place again after a preemption, ahead of all that
    came later.
    """

    def __init__(
        self, policy: SchedulingPolicy, tenants: Sequence[str], timeout: float | None
    ) -> None:
        self._policy = policy
        self._tenants = tenants
        self._timeout = timeout
        self._line: list[Request] = []
        self._aside: dict[str, tuple[Request, Callable[[], bool], str]] = {}
        self._deadlines: list[tuple[float, int, bool, Request]] = []

    def __len__(self) -> int:
        return len(self._line) + len(self._aside)

    def __iter__(self) -> Iterator[Request]:
        yield from self._line
        for request, _, _ in self._aside.values():
            yield request

    @property
    def num_in_line(self) -> int:
        return len(self._line)

    def waiting_reasons(self) -> dict[str, int]:
        """How many stand aside, by reason."""
        counts: dict[str, int] = {}
        for _, _, reason in self._aside.values():
            counts[reason] = counts.get(reason, 0) + 1
        return counts

    def add(self, request: Request, now: float) -> None:
        """Into the line."""
        if self._policy.keys_are_fixed and not request.preempted:
            request.key = float(self._policy.keys(request_arrays([request], now, self._tenants))[0])
        request.status = Status.WAITING
        insort(self._line, request, key=_order)

    def watch(self, request: Request) -> None:
        """End the request if it still waits when its deadline or the queue's limit passes."""
        for seconds, always in ((request.input.deadline, True), (self._timeout, False)):
            if seconds is not None:
                when = request.arrived_at + seconds
                heapq.heappush(self._deadlines, (when, request.arrival, always, request))

    def overdue(self, now: float) -> list[tuple[Request, str]]:
        """Requests whose time to wait is over, and why.  The queue's limit does not concern
        those that have run already; they only wait to go on."""
        late = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, _, always, request = heapq.heappop(self._deadlines)
            if request.status in (Status.WAITING, Status.ASIDE):
                if always:
                    late.append((request, "the deadline passed while the request was waiting"))
                elif not request.has_run:
                    late.append((request, f"waited longer than {self._timeout} s in the queue"))
        return late

    def refresh(self, now: float) -> None:
        """Once a step: wake those whose wait is over, sort again if keys move."""
        for name in [n for n, (_, wake, _) in self._aside.items() if wake()]:
            request, _, _ = self._aside.pop(name)
            self.add(request, now)
        if self._line and not self._policy.keys_are_fixed:
            keys = self._policy.keys(request_arrays(self._line, now, self._tenants))
            for request, key in zip(self._line, keys.tolist(), strict=True):
                request.key = key
            self._line.sort(key=_order)

    def first(self) -> Request | None:
        return self._line[0] if self._line else None

    def pop_first(self) -> Request:
        return self._line.pop(0)

    def put_aside(self, wake: Callable[[], bool], reason: str) -> None:
        """The first in line steps out and blocks nobody."""
        request = self._line.pop(0)
        request.status = Status.ASIDE
        self._aside[request.id] = (request, wake, reason)

    def remove(self, request: Request) -> None:
        """Out of line or from aside."""
        if request.status is Status.ASIDE:
            del self._aside[request.id]
        else:
            self._line.remove(request)
