"""The engine core in a process of its own: how it is started, watched and ended.

The child is a fresh interpreter (never a fork: torch does not survive one) that reads its
orders from standard input.  It dies with its parent, which keeps that pipe open: see
`framework.plugins.tied`.  Where a fork of the parent has the pipe too, the thread that tells
that the child lives looks for the parent each time.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence

import msgspec

from framework.core.engine_core import EngineCore
from framework.engine.remote.links import (
    KILL_AFTER,
    Addresses,
    AnswerSender,
    SocketClientLink,
    SocketServerLink,
)
from framework.engine.remote.messages import (
    Answer,
    Died,
    Request,
    Started,
    Stop,
    WireError,
)
from framework.engine.remote.pulse import Heart, Pulse
from framework.engine.remote.server import CoreServer, ServerLink
from framework.errors import EngineDeadError
from framework.plugins.tied import hold_on

BEAT_SECONDS = 1.0
_SIZE = 8
"""Bytes that say how long the orders are."""
LAST_WORDS_SECONDS = 0.1
"""What a child has sent may come a little later than its end is seen."""


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """What the child is told.  builder: "module:function" that makes the core from `recipe`;
    the parent chooses it, and nobody else can write to the child's standard input."""

    builder: str
    recipe: bytes
    requests: str
    answers: str
    parent: int
    log_level: int


Built = tuple[EngineCore, Started]
Builder = Callable[[bytes], Built]


def serve(link: ServerLink, build: Callable[[], Built], pulse: Pulse | None = None) -> None:
    """Make a core and serve it; whatever goes wrong is told to the other end.  pulse: see
    CoreServer."""
    try:
        core, started = build()
    except BaseException as error:
        link.send(Died(error=WireError.of(error)))
        if not isinstance(error, Exception):
            raise
        return
    link.send(started)
    CoreServer(core, link, pulse or Pulse()).run()


class CoreProcess:
    """A running child, as a link to it.

    `receive` raises EngineDeadError once the child is gone and all that it sent was taken.
    """

    def __init__(self, builder: str, recipe: bytes, *, log_level: int) -> None:
        self._addresses = Addresses()
        self._link = SocketClientLink(self._addresses)
        orders = Orders(
            builder=builder,
            recipe=recipe,
            requests=self._addresses.requests,
            answers=self._addresses.answers,
            parent=os.getpid(),
            log_level=log_level,
        )
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        self._child = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            # Ctrl-C in a terminal goes to the parent, which ends its child in order.
            start_new_session=True,
        )
        assert self._child.stdin is not None
        text = msgspec.msgpack.encode(orders)
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.write(len(text).to_bytes(_SIZE) + text)
            self._child.stdin.flush()

    @property
    def pid(self) -> int:
        return self._child.pid

    def send(self, request: Request) -> None:
        """Never waits for the core."""
        self._link.send(request)

    def receive(self, timeout: float) -> Sequence[Answer]:
        """All that has come; waits up to `timeout` seconds for the first."""
        ended = self.ended()
        found = self._link.receive(timeout if ended is None else LAST_WORDS_SECONDS)
        if not found and ended is not None:
            raise ended
        return found

    def ended(self) -> EngineDeadError | None:
        """See ClientLink."""
        exit_code = self._child.poll()
        if exit_code is None:
            return None
        return EngineDeadError(
            "the process of the engine core has ended",
            expected="a process that runs until it is told to stop",
            found=_how(exit_code),
            mend="see its last lines on standard error, then start the engine anew",
        )

    def kill(self) -> None:
        """See ClientLink."""
        self._child.kill()

    def end(self) -> None:
        """End the child, by force if it does not end by itself, and wait for that."""
        if self._child.poll() is None:
            self._end()
        assert self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # orders that it did not read
            self._child.stdin.close()

    def _end(self) -> None:
        self._link.send(Stop())
        try:
            self._child.wait(KILL_AFTER)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def close(self) -> None:
        """After `end`, and when nobody receives any more.  May be called twice."""
        self._link.close()
        self._addresses.remove()


def _how(exit_code: int) -> str:
    if exit_code < 0:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(-exit_code).name}"
    return f"exit code {exit_code}"


# The child's side.


def main() -> None:
    """Read the orders, make the core, serve it."""
    size = int.from_bytes(sys.stdin.buffer.read(_SIZE))
    orders = msgspec.msgpack.decode(sys.stdin.buffer.read(size), type=Orders)
    hold_on()
    # The parent decides when the child ends: whoever stops the service signals the parent.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import logging

    logging.basicConfig(level=orders.log_level, format="core: %(message)s", force=True)
    link = SocketServerLink(orders.requests, orders.answers, parent=orders.parent)
    pulse = Pulse()
    heart = threading.Thread(target=_beat, args=(orders, pulse), name="framework-heartbeat")
    heart.daemon = True
    heart.start()
    try:
        serve(link, lambda: _builder(orders.builder)(orders.recipe), pulse)
    finally:
        link.close()


def _builder(value: str) -> Builder:
    import importlib

    module, _, name = value.partition(":")
    found: Builder = getattr(importlib.import_module(module), name)
    return found


def _beat(orders: Orders, pulse: Pulse) -> None:
    """Tell that the process lives, from a thread and a socket of its own, since a step may
    take long; and end the process when the parent is gone, for the same reason."""
    sender = AnswerSender(orders.answers)
    heart = Heart(pulse, BEAT_SECONDS)
    while os.getppid() == orders.parent:
        sender.send(heart.beat())
        time.sleep(BEAT_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main()
