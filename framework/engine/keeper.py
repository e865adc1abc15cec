"""The engine core of a front end: its start, its end, and another one when it dies.

start        died, "restart"      started anew
------ alive ------- recovering ------- alive
             died, "exit", or too often
       alive ------- dead
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from framework.engine.in_flight import InFlight
from framework.engine.remote.process import BEAT_SECONDS
from framework.engine.watchdog import Watchdog
from framework.errors import EngineDeadError, EngineRestartingError, FrameworkError

if TYPE_CHECKING:
    from framework.engine.front_end import FrontEnd
    from framework.engine.remote.messages import Started

log = logging.getLogger("framework")

PAUSE_SECONDS = 1.0
"""Between two starts of which the first failed."""


class Allowance:
    """At most `most` events in any `window` seconds.  clock: seconds, rising."""

    def __init__(
        self, most: int, window: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most, self._window, self._clock = most, window, clock
        self._taken: deque[float] = deque()

    def take(self) -> bool:
        """Whether one more may happen now; then it is counted."""
        now = self._clock()
        while self._taken and now - self._taken[0] >= self._window:
            self._taken.popleft()
        if len(self._taken) >= self._most:
            return False
        self._taken.append(now)
        return True


class CoreKeeper:
    """For one event loop.

    front: whose core it is.  `on_core_death` of its configuration says whether a core that died
    is replaced; then `max_core_restarts` in `core_restart_window` seconds are tried, those that
    fail included.  A core in a process is watched: one that gives no sign of life, makes one
    step for longer than `step_timeout`, or loads its model for longer than `load_timeout`, is ended
    and counts as one that died.
    """

    def __init__(self, front: FrontEnd, in_process: bool) -> None:
        self._front, self._in_process = front, in_process
        config = front.config.execution
        self._step_timeout, self._load_timeout = config.step_timeout, config.load_timeout
        self._restarts = config.on_core_death == "restart"
        self._allowance = Allowance(config.max_core_restarts, config.core_restart_window)
        self._flight: InFlight | None = None
        self._replacing: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._stopping = False

    async def start(self) -> Started:
        """Raises what stops the start; then nothing is left running."""
        self._flight, started = await self._begin()
        try:
            await asyncio.to_thread(self._front.events.prepare, started.cache)
        except BaseException:
            await asyncio.to_thread(self._flight.core.close)
            raise
        if not self._in_process:
            self._watching = asyncio.create_task(self._watch())
        return started

    async def _watch(self) -> None:
        flight, dog = self.flight, Watchdog(BEAT_SECONDS, self._step_timeout)
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            if flight is not self._flight:
                flight, dog = self.flight, Watchdog(BEAT_SECONDS, self._step_timeout)
            error = dog.look(flight.core.signs, flight.core.busy)
            if error is not None and flight.core.dead is None:
                flight.core.give_up(error)

    async def _begin(self) -> tuple[InFlight, Started]:
        flight = InFlight(
            self._front.link(self._in_process),
            self._front.tokenizer,
            self._front.events,
            on_death=lambda: self._died(flight),
        )
        try:
            started = await self._started(flight)
        except BaseException:
            await asyncio.to_thread(flight.core.close)
            raise
        self._front.started(started)
        return flight, started

    async def _started(self, flight: InFlight) -> Started:
        """Once the core is ready.  Raises what stopped its start; one that hangs is ended."""
        seconds = None if self._in_process else self._load_timeout
        try:
            async with asyncio.timeout(seconds):
                return await flight.core.started()
        except TimeoutError:
            error = EngineDeadError(
                "the engine core hangs while it loads its model",
                expected=f"one that is ready within load_timeout, {seconds:g} s",
                found="one that is not ready yet",
                mend="see its last lines on standard error; give it more time with load_timeout "
                "if it was at work",
            )
            flight.core.give_up(error)
            raise error from None

    @property
    def flight(self) -> InFlight:
        """Of the newest core, which may be dead."""
        assert self._flight is not None, "start() came before"
        return self._flight

    @property
    def recovering(self) -> bool:
        """A core died and another one is being started."""
        return self._replacing is not None and not self._replacing.done()

    def alive(self) -> InFlight:
        """Raises EngineRestartingError while another core is being started, EngineDeadError
        when there will be none."""
        flight = self.flight
        if flight.core.dead is None:
            return flight
        if self.recovering:
            raise _restarting(flight.core.dead)
        raise flight.core.dead.with_traceback(None)

    def check(self) -> None:
        """Raises what `alive` raises, also between the end of a core and the moment when those
        who wait are told of it."""
        ended = self.alive().core.ended()
        if ended is not None:
            raise _restarting(ended) if self._restarts else ended

    def _died(self, flight: InFlight) -> None:
        ours = flight is self._flight and not self._stopping
        if ours and self._restarts and not self.recovering:
            self._replacing = asyncio.create_task(self._replace(flight))

    async def _replace(self, dead: InFlight) -> None:
        log.error("the engine core died: %s", dead.core.dead)
        await asyncio.to_thread(dead.core.close)
        while self._allowance.take():
            log.warning("starting the engine core anew")
            try:
                self._flight, _ = await self._begin()
            except FrameworkError as error:
                log.error("the engine core could not be started anew: %s", error)
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            self._front.events.core_restarted()
            if self._flight.core.dead is None:
                log.warning("the engine core runs again")
                return
            # Its death was told before it was known as ours.
            log.error("the engine core died again: %s", self._flight.core.dead)
            await asyncio.to_thread(self._flight.core.close)
        log.error("the engine core died too often; it is not started anew")

    async def stop(self, *, drain: bool) -> None:
        """End the core.  drain: when it has served all.  May be called twice."""
        self._stopping = True
        await _end(self._replacing)
        if self._flight is not None:
            await self._flight.stop(drain=drain)
        await _end(self._watching)  # a core may hang while it serves the last ones
        if self._flight is not None:
            await asyncio.to_thread(self._flight.core.close)


async def _end(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _restarting(death: FrameworkError) -> EngineRestartingError:
    return EngineRestartingError(
        "the engine core died and is being started anew",
        found=death.found,
        mend="ask again later",
    )
