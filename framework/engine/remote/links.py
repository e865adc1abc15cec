"""Two ways between front end and core: queues inside a process, ZeroMQ between two."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import zmq

from framework.engine.private_folder import PrivateFolder
from framework.engine.remote.messages import (
    Answer,
    Request,
    Stop,
    Unreadable,
    answer_coder,
    read_request,
    request_coder,
)
from framework.engine.remote.server import ServerLink
from framework.errors import EngineDeadError

T = TypeVar("T")
KILL_AFTER = 10.0
"""Seconds between the request to end and the end by force."""
LAST_WORDS_MS = 2000
"""How long a core that ends waits for its last messages to be taken."""


class ClientLink(Protocol):
    """The front end's end.  `send` and `receive` may be called by one thread each.

    `receive` raises EOFError or EngineDeadError when nothing more can come.
    pid: of the core's process; None where it is this one.
    """

    @property
    def pid(self) -> int | None: ...

    def send(self, request: Request) -> None:
        """Never waits for the core."""
        ...

    def receive(self, timeout: float) -> Sequence[Answer]:
        """All that has come; waits up to `timeout` seconds for the first."""
        ...

    def ended(self) -> EngineDeadError | None:
        """How the core has ended, None while it runs; what it sent may still be on its way.  May
        be called by any thread."""
        ...

    def kill(self) -> None:
        """Make a core that hangs end, without waiting for it.  A thread cannot be made to end."""
        ...

    def end(self) -> None:
        """Make the core end, by whatever means, and wait for that.  May be called twice."""
        ...

    def close(self) -> None:
        """After `end`, when nobody receives any more.  May be called twice."""
        ...


class _QueueEnd:
    """One end of a pair of queues.  None in a queue: the other end is gone."""

    def __init__(self, inbox: queue.SimpleQueue[Any], outbox: queue.SimpleQueue[Any]) -> None:
        self._inbox = inbox
        self._outbox = outbox
        self._gone = False

    def send(self, message: Any) -> None:
        self._outbox.put(message)

    def receive(self, timeout: float) -> list[Any]:
        if self._gone:
            raise EOFError("the other end is gone")
        found: list[Any] = []
        try:
            found.append(self._inbox.get(timeout > 0, timeout or None))
            while True:
                found.append(self._inbox.get_nowait())
        except queue.Empty:
            pass
        if None in found:
            self._gone = True
            found = found[: found.index(None)]
            if not found:
                raise EOFError("the other end is gone")
        return found

    def close(self) -> None:
        self._outbox.put(None)


class QueueLink(_QueueEnd):
    """The front end's end of a link inside one process: messages are handed over as they are,
    and whoever serves the other end does so in a thread of its own."""

    pid = None

    def __init__(self, serve: Callable[[ServerLink], None]) -> None:
        there: queue.SimpleQueue[Any] = queue.SimpleQueue()
        back: queue.SimpleQueue[Any] = queue.SimpleQueue()
        super().__init__(back, there)
        far = _QueueEnd(there, back)

        def run() -> None:
            try:
                serve(far)
            finally:
                far.close()

        self._thread = threading.Thread(target=run, name="framework-core", daemon=True)
        self._thread.start()

    def ended(self) -> EngineDeadError | None:
        """See ClientLink."""
        if self._thread.is_alive():
            return None
        return EngineDeadError(
            "the thread of the engine core has ended",
            expected="a thread that runs until it is told to stop",
            mend="the log has the fault; start the engine anew",
        )

    def kill(self) -> None:
        """See ClientLink."""

    def end(self) -> None:
        """See ClientLink."""
        self.send(Stop())
        self._thread.join()


class _Socket:
    """One direction: encoded messages through a ZeroMQ socket of one thread."""

    def __init__(self, kind: int, address: str, *, bind: bool, linger: int) -> None:
        self._context = zmq.Context()
        self._socket: zmq.Socket[bytes] = self._context.socket(kind)
        self._socket.setsockopt(zmq.LINGER, linger)
        # Neither end may ever wait for the other: what is in flight is bounded by the requests
        # that admission lets in.
        self._socket.setsockopt(zmq.SNDHWM, 0)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        (self._socket.bind if bind else self._socket.connect)(address)

    def send(self, data: bytes) -> None:
        self._socket.send(data)

    def receive(self, timeout: float, decode: Callable[[bytes], T]) -> list[T]:
        found: list[T] = []
        if not self._socket.poll(int(timeout * 1000)):
            return found
        try:
            while True:
                found.append(decode(self._socket.recv(zmq.NOBLOCK)))
        except zmq.Again:
            return found

    def close(self) -> None:
        if not self._socket.closed:
            self._socket.close()
            self._context.term()


class Addresses:
    """Where the two sockets of a core lie: a folder that only this user can enter."""

    def __init__(self) -> None:
        self._folder = PrivateFolder()
        self.requests = f"ipc://{self._folder.path}/requests"
        self.answers = f"ipc://{self._folder.path}/answers"

    def remove(self) -> None:
        """Delete the folder; may be called twice."""
        self._folder.remove()


class SocketClientLink:
    """The front end's end of a link to another process."""

    def __init__(self, addresses: Addresses) -> None:
        # A sender that binds waits while nobody is connected; one that connects never does.
        self._requests = _Socket(zmq.PUSH, addresses.requests, bind=False, linger=0)
        self._answers = _Socket(zmq.PULL, addresses.answers, bind=True, linger=0)
        self._encoder, _ = request_coder()
        _, self._decoder = answer_coder()

    def send(self, request: Request) -> None:
        self._requests.send(self._encoder.encode(request))

    def receive(self, timeout: float) -> Sequence[Answer]:
        return self._answers.receive(timeout, self._decoder.decode)

    def close(self) -> None:
        self._requests.close()
        self._answers.close()


class AnswerSender:
    """Sends to the front end; each thread needs one of its own."""

    def __init__(self, address: str) -> None:
        self._socket = _Socket(zmq.PUSH, address, bind=False, linger=LAST_WORDS_MS)
        self._encoder, _ = answer_coder()

    def send(self, answer: Answer) -> None:
        """Never waits for the front end."""
        self._socket.send(self._encoder.encode(answer))

    def close(self) -> None:
        """Returns when all was taken, or nobody took it for a while."""
        self._socket.close()


class SocketServerLink(AnswerSender):
    """The core's end.  parent: id of the process at the other end, watched while idle."""

    def __init__(self, requests: str, answers: str, *, parent: int) -> None:
        super().__init__(answers)
        self._requests = _Socket(zmq.PULL, requests, bind=True, linger=0)
        self._parent = parent
        _, self._decoder = request_coder()

    def receive(self, timeout: float) -> Sequence[Request | Unreadable]:
        """See ServerLink."""
        found = self._requests.receive(timeout, partial(read_request, self._decoder))
        if not found and os.getppid() != self._parent:
            raise EOFError("the front end is gone")
        return found

    def close(self) -> None:
        """Also the end that receives."""
        self._requests.close()
        super().close()
