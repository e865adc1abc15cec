"""Requests that do not run: those in line, and those that stand aside."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from framework.core.line import FixedLine, Line, MovingLine
from framework.core.request import Request, Status
from framework.core.service_rate import ServiceRate

if TYPE_CHECKING:
    from framework.contracts.scheduling_policy import SchedulingPolicy


class WaitingQueue:
    """The line, sorted by (policy's key, arrival), and those who wait for something else.

    A request whose key is fixed finds its place again after a preemption, ahead of all that
    came later.  num_tokens: of the prompts of all who wait.
    """

    def __init__(
        self, policy: SchedulingPolicy, tenants: Sequence[str], timeout: float | None
    ) -> None:
        self._timeout = timeout
        self._now = 0.0
        self.rate = ServiceRate()
        make = FixedLine if policy.keys_are_fixed else MovingLine
        self._line: Line = make(policy, tenants)
        self._aside: dict[str, tuple[Request, Callable[[], bool], str]] = {}
        self._deadlines: list[tuple[float, int, bool, Request]] = []
        self._clear_at = 64
        self.num_tokens = 0

    def __len__(self) -> int:
        return len(self._line) + len(self._aside)

    def __iter__(self) -> Iterator[Request]:
        yield from self._line
        for request, _, _ in self._aside.values():
            yield request

    def stands_still(self, now: Callable[[], float]) -> bool:
        """Nobody waits, or all wait in a line that is the same as in the step before: nobody
        came, stands aside, or has waited too long."""
        if not len(self):
            return True
        late = self._deadlines and self._deadlines[0][0] <= now()
        return not (late or self._aside or self._line.unsorted)

    def in_line(self) -> Iterator[Request]:
        """Those who stand aside left out."""
        return iter(self._line)

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
        request.status = Status.WAITING
        self._now = now
        self.num_tokens += len(request.input.tokens)
        self._line.add(request, now)

    def watch(self, request: Request) -> None:
        """End the request if it waits when its deadline or the queue's limit passes."""
        if request.input.deadline is not None:
            self._end_at(request, request.input.deadline, True)
        if self._timeout is not None:
            self._end_at(request, self._timeout, False)

    def _end_at(self, request: Request, seconds: float, always: bool) -> None:
        when = request.arrived_at + seconds
        if math.isfinite(when):  # one that is no time would block those behind it
            heapq.heappush(self._deadlines, (when, request.arrival, always, request))
        if len(self._deadlines) > self._clear_at:
            self._forget_ended()

    def _forget_ended(self) -> None:
        """Requests that ended long before their deadline are not kept until then."""
        self._deadlines = [d for d in self._deadlines if d[3].status is not Status.FINISHED]
        heapq.heapify(self._deadlines)
        self._clear_at = max(2 * len(self._deadlines), 64)

    def overdue(self, now: float) -> list[tuple[Request, str]]:
        """Requests whose time to wait is over, and why.  A deadline that passed while the
        request ran is met, also if it waits again since; one that waits for its pages does not
        run.  The queue's limit does not concern those that have had a slot."""
        late: dict[str, tuple[Request, str]] = {}  # by id: both limits may pass at one time
        while self._deadlines and self._deadlines[0][0] <= now:
            when, _, always, request = heapq.heappop(self._deadlines)
            waits = request.status in (Status.WAITING, Status.ASIDE, Status.LOADING)
            if waits and when > request.waits_since:
                if always:
                    why = "the deadline passed while the request was waiting"
                    late.setdefault(request.id, (request, why))
                elif not request.has_run:
                    why = f"waited longer than {self._timeout} s in the queue"
                    late.setdefault(request.id, (request, why))
        return list(late.values())

    def refresh(self, now: float) -> None:
        """Once a step: wake those whose wait is over, sort again if keys move."""
        self._now = now
        for name in [n for n, (_, wake, _) in self._aside.items() if wake()]:
            request, _, _ = self._aside.pop(name)
            self.num_tokens -= len(request.input.tokens)
            self.add(request, now)
        if len(self._line):
            self._line.refresh(now)

    def first(self) -> Request | None:
        return self._line.first()

    def pop_first(self) -> Request:
        """The first in line takes a slot."""
        request = self._pop()
        if not request.has_run:
            self.rate.note(self._now)
        return request

    def _pop(self) -> Request:
        request = self._line.first()
        assert request is not None
        self.num_tokens -= len(request.input.tokens)
        self._line.remove(request)
        return request

    def put_aside(self, wake: Callable[[], bool], reason: str) -> None:
        """The first in line steps out and blocks nobody."""
        request = self._pop()
        request.status = Status.ASIDE
        self.num_tokens += len(request.input.tokens)
        self._aside[request.id] = (request, wake, reason)

    def remove(self, request: Request) -> None:
        """Out of line or from aside."""
        self.rate.note(self._now)
        self.num_tokens -= len(request.input.tokens)
        if request.status is Status.ASIDE:
            del self._aside[request.id]
        else:
            self._line.remove(request)
