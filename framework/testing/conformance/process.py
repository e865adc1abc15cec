"""Whether a process is as it was: what has changed of what all share, and threads that go on."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from framework.testing.conformance.shared import SHARED, Shared

OWN_THREADS = "framework-"
"""How names of threads begin that the core keeps for itself."""
RANDOM = "random numbers of"
"""How rows begin that go on with each number that is drawn."""
FILTERS = "filters for all warnings"
"""A row that is put back with all other filters."""


@contextmanager
def process_restored(rows: Mapping[str, Shared] = SHARED) -> Iterator[dict[str, str]]:
    """What has changed within, and how, once the block has ended; it is put back where that can be
    done, so that each clause finds the process as the one before it did."""
    before = read(rows)
    filters = list(warnings.filters)
    changed: dict[str, str] = {}
    try:
        yield changed
    finally:
        for name, was, now in differences(rows, before):
            changed[name] = _difference(was, now)
            write = rows[name].write
            if write is not None:
                with suppress(OSError, ValueError):  # what may be lowered and never raised again
                    write(was)
        if FILTERS in changed:
            warnings.filters[:] = filters  # type: ignore[index]
            warnings._filters_mutated()  # type: ignore[attr-defined]


def read(rows: Mapping[str, Shared]) -> dict[str, Any]:
    """What each row is now."""
    return {name: shared.read() for name, shared in rows.items()}


def differences(
    rows: Mapping[str, Shared], before: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """(name, what it was, what it is) of each row that has changed."""
    for name, shared in rows.items():
        now = shared.read()
        if now != before[name]:
            yield name, before[name], now


def _difference(before: Any, now: Any) -> str:
    """Names of what differs in a mapping, for a value may be a secret; else both, cut short."""
    if isinstance(before, dict):
        names = sorted(str(k) for k in before.keys() | now.keys() if before.get(k) != now.get(k))
        return f"{', '.join(names):.200}"
    return f"{before!s:.60} became {now!s:.60}"


def threads_since(before: set[threading.Thread]) -> list[str]:
    """Names of threads that run now and did not then, but for those of the core itself."""
    return [
        thread.name
        for thread in threading.enumerate()
        if thread not in before and thread.is_alive() and not thread.name.startswith(OWN_THREADS)
    ]
