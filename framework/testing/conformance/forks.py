"""Processes for trials of imports, forked from one that has loaded the core already.

A new interpreter needs half a second for that, each time; who checks dozens of plugins waits for
little else.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import struct
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from framework.plugins.tied import tied

LENGTH = struct.Struct("!Q")
ANSWER = struct.Struct("!?i")


@dataclass(frozen=True)
class Order:
    """What a process begins with.  budget: seconds after which it is killed."""

    arguments: tuple[str, ...]
    path: tuple[str, ...]
    environment: dict[str, str]
    folder: str
    budget: float


class ForkServer:
    """One program that forks for each trial; it starts with the first, and ends with this process
    or with `close`.  Linux only.

    In it nothing but the core is loaded, it has one thread, and each fork gets a session, a path,
    an environment and standard files of its own: a plugin finds it as it would a new interpreter.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left = contextlib.ExitStack()
        self._channel: socket.socket | None = None

    def run(
        self, arguments: Sequence[str], *, stdout: IO[bytes], stderr: IO[bytes], budget: float
    ) -> int | None:
        """The exit status of `probe_child.main(*arguments)` with this process's path and
        environment; None if it did not end within `budget` seconds and was killed, with its group.

        Raises ConnectionError where the program itself ended; the next call starts another one.
        """
        order = Order(
            arguments=tuple(arguments),
            path=tuple(entry or os.getcwd() for entry in sys.path),
            environment=dict(os.environ),
            folder=os.getcwd(),
            budget=budget,
        )
        with self._lock:
            try:
                return self._ask(pickle.dumps(order), stdout, stderr)
            except BaseException:  # also an alarm: the next answer would be the one to this order
                self._left.close()
                raise

    def close(self) -> None:
        """End the program, and what it runs."""
        with self._lock:
            self._left.close()

    def _ask(self, order: bytes, stdout: IO[bytes], stderr: IO[bytes]) -> int | None:
        if self._channel is None:
            self._channel = self._started()
        lifeline, held = os.pipe()
        try:
            files = [lifeline, stdout.fileno(), stderr.fileno()]
            socket.send_fds(self._channel, [LENGTH.pack(len(order))], files)
            self._channel.sendall(order)
            ended, status = ANSWER.unpack(received(self._channel, ANSWER.size))
        finally:
            os.close(lifeline)
            os.close(held)
        return status if ended else None

    def _started(self) -> socket.socket:
        mine, its = socket.socketpair()
        self._left.callback(setattr, self, "_channel", None)
        self._left.enter_context(mine)
        with its:
            number = str(its.fileno())
            program = tied(f"{__package__}.forks_child", number, pass_fds=(its.fileno(),))
            self._left.enter_context(program)
        return mine


def received(channel: socket.socket, size: int) -> bytes:
    """So many bytes.  Raises ConnectionError where the other side ends before."""
    found = b""
    while len(found) < size:
        part = channel.recv(size - len(found))
        if not part:
            raise ConnectionError("the other side has ended")
        found += part
    return found
