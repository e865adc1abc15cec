"""Time that passes only where a plugin spends it: a slow machine changes no outcome."""

from __future__ import annotations

from typing import ClassVar

from framework.testing.conformance import Suite


class FakeTime:
    """For a suite: its clock."""

    seconds: ClassVar[float] = 0.0

    def now(self):
        return FakeTime.seconds

    def pause(self, seconds):
        spend(seconds)


def spend(seconds):
    """What a slow plugin does."""
    FakeTime.seconds += seconds


def timed(suite: type[Suite]) -> type[Suite]:
    """The suite with the fake clock; what takes real time, in a process of its own, has plenty."""
    plenty = {"slowness": 1.0, "load_budget": 3600.0, "detection_budget": 3600.0}
    return type(suite.__name__, (FakeTime, suite), {"__module__": suite.__module__, **plenty})
