"""Ctrl-C must not cut an engine step in two: half a step leaves counts that do not add up.
Nor must it be lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred_interrupt() -> Iterator[None]:
    """Within, the first Ctrl-C waits until the end and is raised there; a second one acts
    at once.  Only Python's own handler is held back, and only in the main thread."""
    if not _python_handles():
        yield
        return
    pending = False

    def hold(number: int, frame: FrameType | None) -> None:
        nonlocal pending
        if pending:
            raise KeyboardInterrupt
        pending = True

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if pending:
        raise KeyboardInterrupt


@contextmanager
def kept_interrupt() -> Iterator[None]:
    """Within, Ctrl-C acts at once; one that got lost is raised at the end.

    Python drops an exception that comes up in a `__del__` or in a callback of the garbage
    collector, and imports and loading run many of these.
    """
    if not _python_handles():
        yield
        return
    seen = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal seen
        seen = True
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if seen:
        raise KeyboardInterrupt


def _python_handles() -> bool:
    """This is the main thread, and Ctrl-C has Python's own handler."""
    main = threading.current_thread() is threading.main_thread()
    return main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
