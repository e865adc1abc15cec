"""What holds a clause back from taking its process with it: it may hang, or end the process."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from framework.plugins.blame import Halt

AGAIN = 0.5
"""Seconds between two alarms."""


class Hanging(Halt):
    """Past whatever `except Exception` the plugin has, and past the guards around it."""


class Ended(Halt):
    """The plugin called os._exit, after which nobody could say so."""


@contextmanager
def bounded(seconds: float) -> Iterator[list[float]]:
    """Raise in the main thread of a Unix process after `seconds`; elsewhere there is no bound.

    The list holds when it did: what was broken off may have been an import, which leaves its
    module half there.

    Raises again until the block ends: Python drops what comes up in a callback of the garbage
    collector, and a plugin may catch everything.
    An alarm that somebody else has set (pytest-timeout) is put back.
    """
    if threading.current_thread() is not threading.main_thread() or sys.platform == "win32":
        yield []
        return
    rang: list[float] = []

    def ring(number: int, frame: FrameType | None) -> None:
        rang.append(time.monotonic())
        raise Hanging(f"it did not end within {seconds:g} s")

    left, interval = signal.getitimer(signal.ITIMER_REAL)
    started = time.monotonic()
    handler = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
        yield rang
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        rest = max(left - (time.monotonic() - started), 0.01) if left else 0.0
        signal.setitimer(signal.ITIMER_REAL, rest, interval)


@contextmanager
def unending() -> Iterator[None]:
    """Within, os._exit of this process raises Ended; processes that are forked end as ever."""
    end, own = os._exit, os.getpid()

    def refuse(status: int) -> None:
        if os.getpid() != own:
            end(status)
        raise Ended(f"the plugin ends the process, with os._exit({status})")

    os._exit = refuse  # type: ignore[assignment]
    try:
        yield
    finally:
        os._exit = end
