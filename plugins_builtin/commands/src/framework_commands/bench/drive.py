"""Sends requests at their times, and no more at once than allowed."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from framework_commands.bench.measure import Measured

Send = Callable[[int], Awaitable[Measured]]
Sleep = Callable[[float], Awaitable[None]]
Clock = Callable[[], float]


def arrivals(
    rate: float, burstiness: float, count: int, rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Seconds from the start at which requests are due, float64 [count]; the first at 0.

    rate: per second, inf is all at once.  burstiness: shape of the gamma distribution of the
    time between two: 1 is a Poisson process, less comes in bursts, more is steadier.
    """
    if math.isinf(rate):
        return np.zeros(count)
    gaps = rng.gamma(burstiness, 1 / (rate * burstiness), count)
    due: npt.NDArray[np.float64] = np.cumsum(gaps) - gaps[0]
    return due


@dataclass(frozen=True, slots=True)
class Driven:
    """results: in order of the requests.  seconds: from the first request to the last answer.
    peak: most requests at one time.  late: the longest time that one was held back by
    `concurrency`."""

    results: list[Measured]
    seconds: float
    peak: int
    late: float


class _Counted:
    def __init__(self) -> None:
        self.now = self.peak = 0
        self.late = 0.0


async def drive(
    send: Send,
    due: Sequence[float],
    concurrency: int | None,
    *,
    sleep: Sleep = asyncio.sleep,
    clock: Clock = time.perf_counter,
) -> Driven:
    """Send request i at `due[i]`, or as soon as fewer than `concurrency` are under way.

    A request is timed from when it is sent: what it waited for its turn is in `late`.
    """
    gate = asyncio.Semaphore(concurrency) if concurrency else contextlib.nullcontext()
    counted, started = _Counted(), clock()

    async def one(index: int) -> Measured:
        ready = clock()
        async with gate:
            counted.late = max(counted.late, clock() - ready)
            counted.now += 1
            counted.peak = max(counted.peak, counted.now)
            try:
                return await send(index)
            finally:
                counted.now -= 1

    async with asyncio.TaskGroup() as group:
        tasks = []
        for index, when in enumerate(due):
            wait = started + when - clock()
            if wait > 0:
                await sleep(wait)
            tasks.append(group.create_task(one(index)))
    results = [task.result() for task in tasks]
    return Driven(results, clock() - started, counted.peak, counted.late)
