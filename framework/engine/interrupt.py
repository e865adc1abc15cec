"""Ctrl-C must not cut an engine step in two: half a step leaves counts that do not add up.
Nor must it be lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class _Kept:
    """A handler that raises at once, and remembers: Python drops an exception that comes up
    in a `__del__` or in a callback of the garbage collector."""

    def __init__(self) -> None:
        self.seen = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.seen = True
        raise KeyboardInterrupt

    def check(self) -> None:
        """Raise what got lost."""
        if self.seen:
            raise KeyboardInterrupt


@contextmanager
def deferred_interrupt() -> Iterator[None]:
    """Within, the first Ctrl-C waits until the end and is raised there; a second one acts
    at once.  One that got lost before, inside of `kept_interrupt`, is raised at the start.
    Only Python's own handler is held back, and only in the main thread."""
    before = _handler()
    if before is None:
        yield
        return
    if isinstance(before, _Kept):
        before.check()
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
        signal.signal(signal.SIGINT, before)
    if pending:
        raise KeyboardInterrupt


@contextmanager
def kept_interrupt() -> Iterator[None]:
    """Within, Ctrl-C acts at once; one that got lost is raised at the next step or at the end.
    Imports, loading and garbage collection run much code in which one can get lost."""
    before = _handler()
    if before is None or isinstance(before, _Kept):
        yield
        return
    kept = _Kept()
    signal.signal(signal.SIGINT, kept)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    kept.check()


def _handler() -> Callable[[int, FrameType | None], object] | None:
    """The handler of Ctrl-C if it is Python's own or one of ours, in the main thread."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread():
        return None
    if handler is signal.default_int_handler or isinstance(handler, _Kept):
        return handler
    return None
