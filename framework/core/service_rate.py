"""How soon a place in the line becomes free, from how often one did."""

from __future__ import annotations

from collections import deque

SHORTEST, LONGEST = 0.1, 60.0
UNKNOWN = 1.0
SAMPLES = 32


class ServiceRate:
    """Times at which somebody left the line."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=SAMPLES)

    def note(self, now: float) -> None:
        """Somebody left the line."""
        self._times.append(now)

    def seconds_per_place(self, now: float) -> float:
        """Mean time between two of the last that left, the time since then included, so that it
        grows while nobody leaves: from 0.1 to 60 s, and 1 s before two have left."""
        if len(self._times) < 2:
            return UNKNOWN
        first, last, count = self._times[0], self._times[-1], len(self._times)
        mean = max((last - first) / (count - 1), (now - first) / count)
        return min(max(mean, SHORTEST), LONGEST)
