"""Keep an eye on one import: who it is, how long it takes, and what it drags in."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from framework.plugins.blame import told
from framework.plugins.records import Record
from framework.shown import in_a_line, printable, shown

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

log = logging.getLogger("framework.plugins")

HEAVY = (
    "torch",
    "transformers",
    "triton",
    "tensorflow",
    "jax",
    "cupy",
    "numba",
    "onnxruntime",
    "vllm",
    "sglang",
)
"""Libraries that cost seconds to import; a plugin imports them in its methods."""


@contextmanager
def watched(record: Record, slow_after: float) -> Iterator[None]:
    """Leave a breadcrumb before the import, and name the plugin for what it does wrong.

    An import can end the process in a way that Python never sees (`os._exit`, a crash in
    native code), so for a third party the breadcrumb goes to stderr, flushed; of a module that is
    loaded already nothing is run.  One that lasts longer than `slow_after` seconds is named there
    while it does.  An error that nobody can catch (in a `__del__`), a heavy library and a thread
    that the end of the process has to wait for are warnings.  Where it forks, the second process
    ends with a line that names it.
    """
    line = f"importing plugin {record.key} {record.version or ''} ({record.value})"
    log.info(line)
    if not record.first_party and record.value.partition(":")[0].strip() not in sys.modules:
        _say(line)
    timer = threading.Timer(
        min(slow_after, threading.TIMEOUT_MAX),  # infinity, and what else no clock can wait for
        _say,
        [f"still {line}, after {slow_after:g} s; it may hang"],
    )
    timer.name = "framework-import-watch"  # cancelled, it still lives for a moment
    timer.daemon = True
    there, threads, process = set(sys.modules), set(threading.enumerate()), os.getpid()
    timer.start()
    try:
        with heard(lambda text: log.warning("plugin %s, on import: %s", record.key, text)):
            yield
    finally:
        if os.getpid() != process:  # two of everything, on one terminal and one port
            _say(f"plugin {record.key} forks when it is imported; the second process ends here")
            os._exit(1)
        timer.cancel()
    for thread in set(threading.enumerate()) - threads - {timer}:
        if not thread.daemon:
            log.warning(
                "plugin %s starts a thread when it is imported, %s: no end of the process before "
                "that of the thread",
                record.key,
                in_a_line(thread.name, 80),
            )
    heavy = loaded_since(there)
    if heavy:
        log.warning(
            "plugin %s imports %s when it is imported; its methods should", record.key, heavy
        )


def loaded_since(there: set[str]) -> str:
    """Heavy libraries that are loaded now and were not among the modules `there`, or ""."""
    return ", ".join(name for name in HEAVY if name in sys.modules and name not in there)


@contextmanager
def heard(tell: Callable[[str], None]) -> Iterator[None]:
    """Within, an error that nobody can catch is told to `tell` as one sentence, and to whoever
    listened before."""
    before = sys.unraisablehook

    def hear(found: UnraisableHookArgs) -> None:
        place = getattr(found.object, "__qualname__", None) or shown(found.object)
        said = told(found.exc_value) if found.exc_value is not None else found.exc_type.__name__
        tell(in_a_line(f"{place} raised {said}"))
        before(found)

    sys.unraisablehook = hear
    try:
        yield
    finally:
        sys.unraisablehook = before


def _say(line: str) -> None:
    # pythonw and some hosts have no stderr, and a plugin may have closed it.
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            print(f"framework: {printable(line)}", file=sys.stderr, flush=True)
