"""Whether an engine core that has not ended still works."""

from __future__ import annotations

from framework.errors import EngineDeadError

SILENCE = 30.0
"""Seconds without a sign of life after which a core counts as lost."""


class Watchdog:
    """Looks at one core, each `period` seconds.

    Silence is counted in looks and not by a clock: where the whole machine stood still, or this
    process did, nobody is to blame.  step_timeout: seconds that one step may take, None: any.
    """

    def __init__(self, period: float, step_timeout: float | None) -> None:
        self._period, self._step_timeout = period, step_timeout
        self._signs = 0
        self._silent = 0.0

    def look(self, signs: int, busy: float) -> EngineDeadError | None:
        """What is wrong, if anything.  signs: how many have come.  busy: seconds that the step
        which is being made has taken so far, as the last sign told."""
        self._silent = self._silent + self._period if signs == self._signs else 0.0
        self._signs = signs
        if self._silent > SILENCE:
            return EngineDeadError(
                "the engine core gives no sign of life",
                expected="one each second",
                found=f"none for {self._silent:.0f} s",
                mend="see its last lines on standard error, then start the engine anew",
            )
        if self._step_timeout is not None and busy > self._step_timeout:
            return EngineDeadError(
                "the engine core hangs in a step",
                expected=f"one that ends within step_timeout, {self._step_timeout:g} s",
                found=f"one that has taken {busy:.0f} s",
                mend="start the engine anew; give it more time with step_timeout if it was at work",
            )
        return None
