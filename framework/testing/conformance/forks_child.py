"""The other side of `forks`: runs as a program, and forks for each order."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pickle
import select
import signal
import socket
import sys
import traceback

from framework.plugins.tied import hold_on
from framework.testing.conformance import probe_child
from framework.testing.conformance.forks import ANSWER, LENGTH, Order, received


def main(number: str) -> None:
    """Take orders from the socket with this number until its other side is closed."""
    hold_on()
    probe_child.core_modules()
    gc.freeze()
    channel = socket.socket(fileno=int(number))
    while True:
        head, files, _, _ = socket.recv_fds(channel, LENGTH.size, 3)
        if not head:
            return
        order: Order = pickle.loads(received(channel, LENGTH.unpack(head)[0]))
        child = os.fork()
        if not child:
            _run(order, files)
        for file in files:
            os.close(file)
        ended, status = _waited(child, order.budget)
        channel.sendall(ANSWER.pack(ended, status))


def _waited(child: int, budget: float) -> tuple[bool, int]:
    """Whether it ended by itself, and its exit status as `Popen.returncode`."""
    handle = os.pidfd_open(child)
    try:
        ended = bool(select.select([handle], [], [], budget)[0])
    finally:
        os.close(handle)
    # Before it is waited for: until then its number and its group are its own.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):  # before it had a group
        os.kill(child, signal.SIGKILL)
    return ended, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _run(order: Order, files: list[int]) -> None:
    """In the fork: become what a new interpreter would be, and do what is asked."""
    try:
        os.setsid()
        for standard, file in enumerate(files):
            os.dup2(file, standard)
        os.closerange(len(files), 1 << 20)
        os.environ.clear()
        os.environ.update(order.environment)
        os.chdir(order.folder)
        sys.path[:] = [order.folder, *order.path]
        sys.argv = [probe_child.__file__, *order.arguments]
        importlib.invalidate_caches()
        probe_child.main(*order.arguments)
    except BaseException:  # as at the end of an interpreter
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1])
