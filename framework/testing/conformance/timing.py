"""How clauses measure time."""

from __future__ import annotations

import time
from collections.abc import Callable

from framework.testing.conformance.cases import expect

ATTEMPTS = 3


class Timing:
    """slowness: by how much this machine is slower than one of today; a budget in seconds is
    multiplied by it."""

    slowness: float = 1.0

    def now(self) -> float:
        """Seconds of the clock that the plugin's calls are measured by."""
        return time.perf_counter()

    def pause(self, seconds: float) -> None:
        """Let `seconds` of that clock pass."""
        time.sleep(seconds)

    def quickest(self, measure: Callable[[], float], budget: float) -> float:
        """The least of what `measure` finds, which is asked again while it is over the budget:
        others use the machine, too, and the first import of a file compiles it."""
        found = measure()
        for _ in range(ATTEMPTS - 1):
            if found <= budget * self.slowness:
                break
            found = min(found, measure())
        return found

    def expect_quick(self, seconds: float, budget: float, what: str, where: str = "") -> None:
        """Raise Violation, which begins with `what`, where `seconds` are over the budget.

        where: what the budget is for, or what to do about it; it follows the budget.
        """
        allowed = budget * self.slowness
        expect(
            seconds <= allowed,
            what,
            expected=f"at most {allowed:g} s{where}",
            found=f"{seconds:.4f} s",
        )
