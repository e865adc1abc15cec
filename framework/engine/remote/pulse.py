"""The sign of life of an engine core: that it lives, and for how long it has made one step."""

from __future__ import annotations

from framework.engine.remote.messages import Beat


class Pulse:
    """step: number of the step that is being made, None between two.  Written by the thread that
    steps, read by the one that tells."""

    def __init__(self) -> None:
        self._steps = 0
        self.step: int | None = None

    def begin(self) -> None:
        """A step begins."""
        self._steps += 1
        self.step = self._steps

    def end(self) -> None:
        """It has ended."""
        self.step = None


class Heart:
    """Makes a beat each `period` seconds, or as often as it is called.

    How long a step takes is counted in beats and not by a clock: while a whole container stands
    still no step is to blame.
    """

    def __init__(self, pulse: Pulse, period: float) -> None:
        self._pulse, self._period = pulse, period
        self._step: int | None = None
        self._busy = 0.0

    def beat(self) -> Beat:
        """The next one."""
        step = self._pulse.step
        same = step is not None and step == self._step
        self._busy = self._busy + self._period if same else 0.0
        self._step = step
        return Beat(busy=self._busy)
