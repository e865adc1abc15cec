"""Programs that end with whoever started them, whatever way that ends.

The parent keeps one end of the program's standard input and never writes to it again once the
orders are read; the kernel closes it when the parent is gone, after `kill -9`, too.  That kills
the process group of the program: itself, even where it holds the interpreter's lock for good,
and what it has started.  (A signal at the end of the parent, PR_SET_PDEATHSIG, would reach the
program alone.)
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

LOOK = 0.2
"""Seconds between two looks whether a program that says nothing is still there."""


@contextlib.contextmanager
def tied(module: str, *arguments: str, **popen: Any) -> Iterator[subprocess.Popen[bytes]]:
    """`python -m module arguments`, with this sys.path; it is killed when the block ends, with
    its process group, and then `returncode` says how it ended.

    The module calls `orders` or `hold_on` first.  popen: more arguments of `subprocess.Popen`.
    """
    where = popen.pop("path", sys.path)
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in where)},
        stdin=subprocess.PIPE,
        start_new_session=True,  # with a group of its own; Ctrl-C reaches the parent, which ends it
        **popen,
    )
    assert process.stdin is not None
    try:
        yield process
    finally:
        # What it left behind has its group, also when it has ended itself.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        with contextlib.suppress(BrokenPipeError):  # orders that it did not read
            process.stdin.close()


def order(process: subprocess.Popen[bytes], orders: object) -> None:
    """Tell a tied program what to do; nothing happens where it has ended already."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(pickle.dumps(orders))
        process.stdin.flush()


def orders() -> Any:
    """In the program: what `order` said; from now on it ends with its parent, and has an empty
    standard input.  Raises EOFError where the parent is gone."""
    found = pickle.load(sys.stdin.buffer)
    hold_on()
    return found


def hold_on() -> None:
    """In a program that gets no orders: end it with its parent, as after `orders`."""
    lifeline = os.dup(0)  # inherited by no program
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    try:
        _by_signal(lifeline)
    except (AttributeError, ImportError, OSError):  # not Linux
        threading.Thread(
            target=_by_thread, args=(lifeline, os.killpg), name="framework-lifeline", daemon=True
        ).start()


def _by_signal(lifeline: int) -> None:
    """Have the kernel kill the group.  Raises where it cannot."""
    import fcntl
    import select

    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:  # the parent ended meanwhile
        os.killpg(0, signal.SIGKILL)


def _by_thread(lifeline: int, kill: Any) -> None:
    os.read(lifeline, 1)
    kill(0, signal.SIGKILL)


def ends(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether a program that says no more ends within `seconds`."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    return process.returncode is not None


def ending(code: int) -> str:
    """How a program with this exit status ended: "exit code 3", "SIGSEGV"."""
    with contextlib.suppress(ValueError):  # of a signal without a name
        if code < 0:
            return signal.Signals(-code).name
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
