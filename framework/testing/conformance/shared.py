"""What all plugins of a process share with each other and with the core: state that nobody owns.

One table: whoever asks what an import or a use leaves behind reads it, and so does whoever puts
it back.  A new piece of such state is a new row.
"""

from __future__ import annotations

import asyncio
import builtins
import csv
import decimal
import faulthandler
import gc
import locale
import logging
import multiprocessing
import os
import random
import signal
import socket
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

OF_LIBRARIES = ("TORCHINDUCTOR_", "TRITON_")
"""How variables begin that torch sets for parts of itself, when it first needs them."""
ROOT = logging.getLogger()
CORE = logging.getLogger("framework")
_SIGNALS = tuple(sorted(signal.valid_signals()))
_OF_DECIMALS = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")


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


def _filters() -> list[Any]:
    """A filter that is added for a warning of one's own is no harm."""
    return [
        (action, category)
        for action, message, category, module, _ in warnings.filters
        if message is None and module is None and category in (Warning, Exception)
    ]


def _decimals(found: Callable[[], decimal.Context]) -> Shared:
    def read() -> dict[str, object]:
        one = found()
        return {name: getattr(one, name) for name in _OF_DECIMALS} | {"traps": dict(one.traps)}

    def write(value: dict[str, Any]) -> None:
        for name in _OF_DECIMALS:
            setattr(found(), name, value[name])
        found().traps.update(value["traps"])

    return Shared(read, write)


def _random_of_numpy() -> list[object]:
    state = np.random.get_state(legacy=True)
    return [part.tolist() if isinstance(part, np.ndarray) else part for part in state]


def file_of(number: int) -> object:
    """Which file a descriptor is of; None where it is closed."""
    try:
        found = os.fstat(number)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _trusts() -> bool:
    """Whether clients of HTTPS ask for certificates unless they are told otherwise."""
    ssl = sys.modules.get("ssl")
    if ssl is None:
        return True
    usual: bool = ssl._create_default_https_context is ssl.create_default_context
    return usual


def _limits() -> dict[str, tuple[int, int]]:
    import resource

    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    return {name: resource.getrlimit(getattr(resource, name)) for name in names}


def _set_limits(value: dict[str, tuple[int, int]]) -> None:
    import resource

    for name, limits in value.items():
        number = getattr(resource, name)
        if resource.getrlimit(number) != limits:
            resource.setrlimit(number, limits)


SHARED: dict[str, Shared] = {
    # Of the system.
    "the environment": Shared(_environment, _set_environment),
    "the working directory": Shared(os.getcwd, os.chdir),
    "the umask": Shared(_umask, os.umask),
    "the standard files": Shared(lambda: [file_of(number) for number in range(3)]),
    "the locale": Shared(
        lambda: locale.setlocale(locale.LC_ALL),
        lambda value: locale.setlocale(locale.LC_ALL, value),
    ),
    "the time zone": Shared(lambda: (time.tzname, time.timezone)),
    "the folder of temporary files": Shared(
        tempfile.gettempdir, lambda value: setattr(tempfile, "tempdir", value)
    ),
    "a signal handler": Shared(
        lambda: {number: signal.getsignal(number) for number in _SIGNALS},
        _set_handlers,
    ),
    # Of the interpreter.  sys.path is not put back: what is imported meanwhile may need it.
    "sys.path": Shared(lambda: list(sys.path)),
    "sys.argv": _list(lambda: sys.argv),
    "sys.stdin": _on(sys, "stdin"),
    "sys.stdout": _on(sys, "stdout"),
    "sys.stderr": _on(sys, "stderr"),
    "sys.excepthook": _on(sys, "excepthook"),
    "sys.unraisablehook": _on(sys, "unraisablehook"),
    "sys.displayhook": _on(sys, "displayhook"),
    "sys.breakpointhook": _on(sys, "breakpointhook"),
    "sys.setprofile": Shared(sys.getprofile, sys.setprofile),
    "threading.excepthook": _on(threading, "excepthook"),
    "the stack of new threads": Shared(threading.stack_size, threading.stack_size),
    "the recursion limit": Shared(sys.getrecursionlimit, sys.setrecursionlimit),
    "the switch interval": Shared(sys.getswitchinterval, sys.setswitchinterval),
    "the longest number in a text": Shared(sys.get_int_max_str_digits, sys.set_int_max_str_digits),
    "the garbage collector": Shared(
        gc.isenabled, lambda value: gc.enable() if value else gc.disable()
    ),
    "thresholds of the garbage collector": Shared(
        gc.get_threshold, lambda value: gc.set_threshold(*value)
    ),
    "callbacks of the garbage collector": _list(lambda: gc.callbacks),
    "what the garbage collector tells": Shared(gc.get_debug, gc.set_debug),
    "the handler of crashes": Shared(faulthandler.is_enabled),
    "builtins": Shared(lambda: dict(vars(builtins)) | {"_": None}),
    # Of the standard library.
    "handlers of the root logger": _list(lambda: ROOT.handlers),
    "filters of the root logger": _list(lambda: ROOT.filters),
    "the level of the root logger": Shared(lambda: ROOT.level, ROOT.setLevel),
    "the level of the core's logger": Shared(lambda: CORE.level, CORE.setLevel),
    "handlers of the core's logger": _list(lambda: CORE.handlers),
    "whether the core's logger tells the root": _on(CORE, "propagate"),
    "the switch that turns logging off": Shared(lambda: ROOT.manager.disable, logging.disable),
    "the class of loggers": Shared(logging.getLoggerClass, logging.setLoggerClass),
    "how records of a log are made": Shared(
        logging.getLogRecordFactory, logging.setLogRecordFactory
    ),
    "whether errors of a log are told": _on(logging, "raiseExceptions"),
    "filters for all warnings": Shared(_filters),
    "how warnings are shown": _on(warnings, "showwarning"),
    "how warnings are written": _on(warnings, "formatwarning"),
    "the default timeout of sockets": Shared(socket.getdefaulttimeout, socket.setdefaulttimeout),
    "whether certificates are asked for": Shared(_trusts),
    "the start method of multiprocessing": Shared(
        lambda: multiprocessing.get_start_method(allow_none=True),
        lambda value: multiprocessing.set_start_method(value, force=True),
    ),
    "the policy of asyncio": Shared(asyncio.get_event_loop_policy, asyncio.set_event_loop_policy),
    "decimal numbers": _decimals(decimal.getcontext),
    "decimal numbers of new threads": _decimals(lambda: decimal.DefaultContext),
    "the longest field of a CSV file": Shared(csv.field_size_limit, csv.field_size_limit),
    "random numbers of Python": Shared(random.getstate, random.setstate),
    # Of numpy.
    "random numbers of numpy": Shared(
        _random_of_numpy, lambda value: np.random.set_state(tuple(value))
    ),
    "what numpy does about errors": Shared(np.geterr, lambda value: np.seterr(**value)),
    "what numpy calls for errors": Shared(np.geterrcall, np.seterrcall),
    "how numpy prints": Shared(
        lambda: {k: v for k, v in np.get_printoptions().items() if k != "override_repr"},
        lambda value: np.set_printoptions(**value),
    ),
}

if sys.platform != "win32":
    SHARED |= {
        "limits of the process": Shared(_limits, _set_limits),
        "the priority of the process": Shared(
            lambda: os.getpriority(os.PRIO_PROCESS, 0),
            lambda value: os.setpriority(os.PRIO_PROCESS, 0, value),
        ),
        "signals that are held back": Shared(
            lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()),
            lambda value: signal.pthread_sigmask(signal.SIG_SETMASK, value),
        ),
    }
if sys.platform == "linux":
    SHARED["the processors that may be used"] = Shared(
        lambda: os.sched_getaffinity(0), lambda value: os.sched_setaffinity(0, value)
    )
