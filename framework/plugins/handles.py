"""Registrations that can be taken back, singly or as a transaction."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from framework.plugins.records import Record


class Handle:
    """One registration.  `close()` takes it back; closing twice is allowed."""

    def __init__(self, record: Record, undo: Callable[[], None]) -> None:
        self.record = record
        self._undo: Callable[[], None] | None = undo

    @property
    def closed(self) -> bool:
        """The registration was taken back."""
        return self._undo is None

    def close(self) -> None:
        """Take the registration back."""
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()

    def __enter__(self) -> Handle:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Journal(threading.local):
    """What this thread has registered within its open transactions, innermost last."""

    def __init__(self) -> None:
        self._open: list[list[Handle]] = []

    def note(self, handle: Handle) -> None:
        """Remember a registration for the innermost transaction, if there is one."""
        if self._open:
            self._open[-1].append(handle)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Take back, newest first, all that was registered within when it ends by an error."""
        self._open.append([])
        try:
            yield
        except BaseException:
            for handle in reversed(self._open.pop()):
                handle.close()
            raise
        kept = self._open.pop()
        for handle in kept:
            self.note(handle)
