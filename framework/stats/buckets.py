"""Histograms while they are counted."""

from __future__ import annotations

from bisect import bisect_left

from framework.contracts.stat_logger import Histogram

# 1, 2.5 and 5 of each decade from a millisecond to 500 seconds.
SECONDS = tuple(float(f"{step}e{decade}") for decade in range(-3, 3) for step in (1, 2.5, 5))
TOKENS = tuple(float(2**power) for power in range(15))


class Buckets:
    """One histogram.  Not for several threads at a time."""

    def __init__(self, name: str, help: str, bounds: tuple[float, ...] = SECONDS) -> None:
        self._name, self._help, self._bounds = name, help, bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """A value that came `times` times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def read(self) -> Histogram:
        """As it is now."""
        return Histogram(
            name=self._name,
            help=self._help,
            bounds=self._bounds,
            counts=tuple(self._counts),
            sum=self._sum,
        )
