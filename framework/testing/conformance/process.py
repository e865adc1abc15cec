"""What all plugins of a process share with each other and with the core: state that nobody owns."""

from __future__ import annotations

import builtins
import gc
import locale
import logging
import os
import random
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

OWN_THREADS = "framework-"
"""How names of threads begin that the core keeps for itself."""

OF_LIBRARIES = ("TORCHINDUCTOR_", "TRITON_")
"""How variables begin that torch sets for parts of itself, when it first needs them."""


@dataclass(frozen=True, slots=True)
class Shared:
    """read: what it is now.  write: put that back; None where it cannot be."""

    read: Callable[[], Any]
    write: Callable[[Any], object] | None = None


def _on(owner: Any, name: str) -> Shared:
    return Shared(lambda: getattr(owner, name), lambda value: setattr(owner, name, value))


def _list(found: Callable[[], list[Any]]) -> Shared:
    def write(value: list[Any]) -> None:
        found()[:] = value

    return Shared(lambda: list(found()), write)


def _environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith(OF_LIBRARIES)}


def _set_environment(value: dict[str, str]) -> None:
    for name in _environment().keys() - value.keys():
        del os.environ[name]
    os.environ.update(value)


def _umask() -> int:
    now = os.umask(0o077)
    os.umask(now)
    return now


def _set_handlers(value: dict[int, Any]) -> None:
    """One that is not Python's own can be neither told nor put back."""
    for number, handler in value.items():
        if handler is not None and signal.getsignal(number) != handler:
            signal.signal(number, handler)


def _set_filters(value: list[Any]) -> None:
    warnings.filters[:] = value  # type: ignore[index]
    warnings._filters_mutated()  # type: ignore[attr-defined]


ROOT = logging.getLogger()
FILTERS = "filters for all warnings"

SHARED: dict[str, Shared] = {
    "the environment": Shared(_environment, _set_environment),
    "the working directory": Shared(os.getcwd, os.chdir),
    "the umask": Shared(_umask, os.umask),
    "the locale": Shared(
        lambda: locale.setlocale(locale.LC_ALL),
        lambda value: locale.setlocale(locale.LC_ALL, value),
    ),
    "a signal handler": Shared(
        lambda: {number: signal.getsignal(number) for number in signal.valid_signals()},
        _set_handlers,
    ),
    # Libraries that are imported meanwhile may need it: it is not put back.
    "sys.path": Shared(lambda: list(sys.path)),
    "sys.stdout": _on(sys, "stdout"),
    "sys.stderr": _on(sys, "stderr"),
    "sys.excepthook": _on(sys, "excepthook"),
    "sys.unraisablehook": _on(sys, "unraisablehook"),
    "threading.excepthook": _on(threading, "excepthook"),
    "the recursion limit": Shared(sys.getrecursionlimit, sys.setrecursionlimit),
    "the switch interval": Shared(sys.getswitchinterval, sys.setswitchinterval),
    "the garbage collector": Shared(
        gc.isenabled, lambda value: gc.enable() if value else gc.disable()
    ),
    "thresholds of the garbage collector": Shared(
        gc.get_threshold, lambda value: gc.set_threshold(*value)
    ),
    "handlers of the root logger": _list(lambda: ROOT.handlers),
    "the level of the root logger": Shared(lambda: ROOT.level, ROOT.setLevel),
    "the level of the core's logger": Shared(
        lambda: logging.getLogger("framework").level,
        lambda value: logging.getLogger("framework").setLevel(value),
    ),
    "the switch that turns logging off": Shared(lambda: ROOT.manager.disable, logging.disable),
    # A filter that is added for a warning of one's own is no harm.
    FILTERS: Shared(
        lambda: [
            (action, category)
            for action, message, category, module, _ in warnings.filters
            if message is None and module is None and category in (Warning, Exception)
        ],
    ),
    "builtins": Shared(lambda: dict(vars(builtins)) | {"_": None}),
    "the default timeout of sockets": Shared(socket.getdefaulttimeout, socket.setdefaulttimeout),
    "random numbers of Python": Shared(random.getstate, random.setstate),
    "random numbers of numpy": Shared(
        lambda: [
            part.tolist() if isinstance(part, np.ndarray) else part
            for part in np.random.get_state(legacy=True)
        ],
        lambda value: np.random.set_state(tuple(value)),
    ),
    "what numpy does about errors": Shared(np.geterr, lambda value: np.seterr(**value)),
    "how numpy prints": Shared(
        lambda: {k: v for k, v in np.get_printoptions().items() if k != "override_repr"},
        lambda value: np.set_printoptions(**value),
    ),
}

RANDOM: dict[str, Callable[[int], object]] = {
    "random numbers of Python": random.seed,
    "random numbers of numpy": np.random.seed,
}
"""How to seed them."""


@contextmanager
def process_restored() -> Iterator[dict[str, str]]:
    """What has changed within, and how, once the block has ended; it is put back where that can be
    done, so that each clause finds the process as the one before it did."""
    before = {name: shared.read() for name, shared in SHARED.items()}
    filters = list(warnings.filters)
    changed: dict[str, str] = {}
    try:
        yield changed
    finally:
        for name, shared in SHARED.items():
            now = shared.read()
            if now == before[name]:
                continue
            changed[name] = _difference(before[name], now)
            if shared.write is not None:
                shared.write(before[name])
            elif name == FILTERS:
                _set_filters(filters)


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
