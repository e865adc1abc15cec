"""Seconds that something takes on a machine that has other work, too."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

STATISTICS = Path("/proc/self/schedstat")
"""Nanoseconds that this process's first thread ran, that it was ready to run and had no processor,
and a count (Linux)."""


def delayed(statistics: Path = STATISTICS) -> float:
    """Seconds until now in which the first thread was ready to run and others had the processor;
    0 where the system does not tell."""
    try:
        return int(statistics.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


class Stopwatch:
    """Of the first thread of this process, from now on.

    Sleep and waiting for others count, as whoever asks waits for them too; what does not is time in
    which other programs had the processor.  Processor time alone would take a sleeper for quick.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        delay: Callable[[], float] = delayed,
    ) -> None:
        self._clock, self._delay = clock, delay
        self._before = delay()
        self._started = clock()

    def seconds(self) -> float:
        """Since it was made."""
        passed = self._clock() - self._started
        return max(passed - (self._delay() - self._before), 0.0)
