"""A worker process, as its parent sees it: asked under a deadline, killed when that passes."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable

import msgspec

from framework.contracts.structured_output import Grammar, Vocabulary
from framework.errors import InputError, PluginError, UnsupportedError
from framework_structured.child import Done, Orders, Task, write_frame

START_SECONDS = 120.0
"""For what is no work on a grammar: to start, and to import libraries."""


class WorkerProcess:
    """Starts with the first task, ends with this object or with the parent.

    handover: makes what the child needs to have the same plugins.  memory: bytes beyond what the
    libraries take.  vocabulary: what `compile` knows of the tokenizer, asked for when it is needed.
    """

    def __init__(
        self,
        handover: Callable[[], bytes],
        memory: int | None,
        vocabulary: Callable[[], Vocabulary],
    ) -> None:
        self._handover = handover
        self._memory = memory
        self._vocabulary = vocabulary
        self._child: subprocess.Popen[bytes] | None = None
        self._begun: set[str] = set()
        self._lock = threading.Lock()
        self._closed = False

    def check(self, backend: str, grammar: Grammar, seconds: float) -> None:
        """Raises InputError or UnsupportedError as the backend does, UnsupportedError when
        `seconds` pass or the process ends, PluginError if the backend fails."""
        self._work("check", backend, grammar, seconds)

    def compile(self, backend: str, grammar: Grammar, seconds: float) -> bytes:
        """What the backend makes of it.  Raises as `check` does."""
        return self._work("compile", backend, grammar, seconds)

    def close(self) -> None:
        """End the process, whatever it does; later tasks raise UnsupportedError."""
        self._closed = True
        child = self._child
        if child is not None:
            child.kill()  # who waits for an answer sees the end of the process
        with self._lock:
            self._end()

    def _work(self, do: str, backend: str, grammar: Grammar, seconds: float) -> bytes:
        with self._lock:
            if self._closed:
                raise UnsupportedError("the engine ends: no more grammars are compiled")
            self._ready(backend, do == "compile")
            task = Task(do=do, backend=backend, structure=grammar.structure, text=grammar.text)
            done = self._ask(task, seconds)
        if done is None:
            raise UnsupportedError(
                f"the grammar is too complex: to {do} it took more than {seconds:g} s or too much "
                "memory",
                expected="a grammar that is ready in time",
                found=f"{grammar.structure} of {len(grammar.text)} characters",
                mend="make it simpler, or raise the limits of the plugin structured_outputs",
            )
        return _answer(done, backend)

    def _ready(self, backend: str, compiles: bool) -> None:
        """A process that has imported what it needs."""
        if self._child is None:
            self._start()
        if backend not in self._begun:
            self._must(Task(do="begin", backend=backend), backend)
            self._begun.add(backend)
        if compiles and "" not in self._begun:
            known = self._vocabulary()
            tokens, ends = list(known.tokens), list(known.eos_ids)
            self._must(Task(do="know", tokens=tokens, eos_ids=ends), backend)
            self._begun.add("")

    def _must(self, task: Task, backend: str) -> None:
        done = self._ask(task, START_SECONDS)
        if done is None:
            raise PluginError(
                f"the process that compiles grammars with {backend!r} did not start",
                expected=f"an answer within {START_SECONDS:g} s",
                found="none; its lines on standard error say why",
                mend="see `framework plugins doctor`",
            )
        _answer(done, backend)

    def _start(self) -> None:
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        self._child = subprocess.Popen(
            [sys.executable, "-m", "framework_structured.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )
        self._begun = set()
        weakref.finalize(self, _end, self._child)
        assert self._child.stdin is not None
        orders = Orders(handover=self._handover(), memory=self._memory)
        with contextlib.suppress(BrokenPipeError):
            write_frame(self._child.stdin, orders)

    def _ask(self, task: Task, seconds: float) -> Done | None:
        """None where it took longer or the process ended; it is gone then."""
        assert self._child is not None
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        data = None
        try:
            with contextlib.suppress(BrokenPipeError):
                write_frame(self._child.stdin, task)
            data = _read(self._child.stdout.fileno(), time.monotonic() + seconds)
        finally:  # also where this is interrupted: half an answer may lie in the pipe
            if data is None:
                self._end()
        return None if data is None else msgspec.msgpack.decode(data, type=Done)

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            _end(child)


def _read(file: int, end: float) -> bytes | None:
    """A frame; None if the other end closes, or it is later than `end`."""
    head = _exactly(file, 8, end)
    return None if head is None else _exactly(file, int.from_bytes(head, "little"), end)


def _exactly(file: int, count: int, end: float) -> bytes | None:
    pieces, waiting = bytearray(), select.poll()
    waiting.register(file, select.POLLIN)
    while len(pieces) < count:
        # What is there is not late, however long this process itself had to wait for its turn.
        if not waiting.poll(max(end - time.monotonic(), 0.0) * 1000):
            return None
        piece = os.read(file, min(count - len(pieces), 1 << 20))
        if not piece:
            return None
        pieces += piece
    return bytes(pieces)


def _answer(done: Done, backend: str) -> bytes:
    if done.error is None:
        return done.data
    if done.invalid:
        raise InputError(done.error, parameter="structured_outputs")
    if done.unsupported:
        raise UnsupportedError(done.error)
    raise PluginError(
        f"structured-output backend {backend!r} failed: {done.error}",
        plugin=f"structured_output:{backend}",
        mend="choose another backend, and report this",
    )


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    for stream in (child.stdin, child.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    child.wait()
