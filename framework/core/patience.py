"""What participants hold back, and for how long they may.

A participant may make a request wait, limit it to nothing in a step, bring its pages late, or
keep the pages of one that has gone.  All of that is legitimate, and each could last for ever
without a word.  So the log names whoever holds something back for long; and what is held back
while nothing else can run, so that only a participant could go on and none does, is ended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from framework.core.request import Status

if TYPE_CHECKING:
    from framework.core.request import Request
    from framework.core.state import CoreState

logger = logging.getLogger("framework.participants")

FIRST_WARNING = 5.0  # seconds; each further one comes after twice the time
BETWEEN_LOOKS = 0.5


@dataclass(frozen=True, slots=True)
class Held:
    """by: the participant as messages name it.  why: what it answered.  since: seconds.
    request: None where pages of a request that has gone are kept."""

    by: str
    why: str
    since: float
    request: Request | None


class HeldBack:
    """What is held back now: one entry per request, or per set of pages that is kept."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._held: dict[Hashable, Held] = {}

    def __iter__(self) -> Iterator[Held]:
        return iter(self._held.values())

    def note(self, key: Hashable, by: str, why: str, request: Request | None) -> None:
        """Held back by `by`; since when it was first noted, if that was the same one."""
        before = self._held.get(key)
        if before is None or before.by != by:
            self._held[key] = Held(by, why, self._clock(), request)

    def clear(self, key: Hashable) -> None:
        """Not held back any more."""
        self._held.pop(key, None)


class Patience:
    """timeout: seconds after which what is held back ends; None: never."""

    def __init__(self, state: CoreState, clock: Callable[[], float], timeout: float | None) -> None:
        self._state, self._clock, self._timeout = state, clock, timeout
        self._idle_since: float | None = None
        self._next_look = 0.0
        self._warn_at: dict[str, float] = {}

    def went_on(self) -> None:
        """A step was planned."""
        self._idle_since = None
        self._warn()

    def idle(self) -> None:
        """Nothing can be computed.  Ends what has been held back too long meanwhile."""
        now = self._clock()
        if self._state.paused:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        elif self._timeout is not None and now - self._idle_since >= self._timeout:
            self._end(now)
        self._warn()

    def _end(self, now: float) -> None:
        """End the requests that are held back.  If there are none, and pages are kept: those that
        have been in line, or ready to go on, without them for so long."""
        state, timeout = self._state, self._timeout or 0
        long = [held for held in state.hub.held if now - held.since >= timeout]
        requests = [(held, held.request) for held in long if held.request is not None]
        for held, request in requests:
            if request.status is not Status.FINISHED:
                state.end(request, "error", self._sentence(held, now - held.since))
        if requests:  # pages of theirs may be enough for the others
            return
        for held in long[:1]:
            running = [state.slots.requests[slot] for slot in state.running]
            for request in [*state.queue.in_line(), *(r for r in running if r is not None)]:
                waited = now - max(held.since, request.arrived_at, request.waits_since)
                if waited >= timeout:
                    state.end(request, "error", self._sentence(held, waited))

    @staticmethod
    def _sentence(held: Held, seconds: float) -> str:
        return (
            f"{held.by} has held the request back for {seconds:.0f} s while nothing else could "
            f"run: {held.why}"
        )

    def _warn(self) -> None:
        """Once per participant, and again after twice the time."""
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look = now + BETWEEN_LOOKS
        by_name: dict[str, list[Held]] = {}
        for held in self._state.hub.held:
            by_name.setdefault(held.by, []).append(held)
        self._warn_at = {by: at for by, at in self._warn_at.items() if by in by_name}
        for by, several in by_name.items():
            oldest = min(several, key=lambda held: held.since)
            age = now - oldest.since
            if age < FIRST_WARNING or now < self._warn_at.get(by, now):
                continue
            self._warn_at[by] = now + age
            requests = [held.request.id for held in several if held.request is not None]
            what = f"{len(requests)} requests ({', '.join(requests[:5])})" if requests else "pages"
            logger.warning("%s has held back %s for up to %.0f s: %s", by, what, age, oldest.why)
