"""The process that checks and compiles grammars: it may be killed, the engine may not.

Runs as `python -m framework_structured.child`.  Standard input brings frames: first `Orders`, then
`Task`s; standard output takes one `Done` for each task.  It ends with its standard input.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import IO, TYPE_CHECKING, Any, cast

import msgspec

from framework.contracts.structured_output import Grammar, Vocabulary
from framework.errors import FrameworkError, InputError, UnsupportedError
from framework.plugins.blame import in_one_line, told

if TYPE_CHECKING:
    from framework.contracts.structured_output import StructuredOutput
    from framework.plugins.registry import PluginRegistry


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """handover: of the plugins.  memory: bytes of address space beyond what the libraries take,
    None: any number."""

    handover: bytes
    memory: int | None = None


class Task(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """do: "begin" (import the libraries of a backend), "know" (tokens and eos_ids of the
    vocabulary), "check" or "compile"."""

    do: str
    backend: str = ""
    structure: str = ""
    text: str = ""
    tokens: list[bytes] = []
    eos_ids: list[int] = []


class Done(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """error: a sentence.  invalid: the grammar is none; unsupported: it cannot be served; else the
    backend failed."""

    data: bytes = b""
    error: str | None = None
    invalid: bool = False
    unsupported: bool = False


def write_frame(stream: IO[bytes], message: msgspec.Struct) -> None:
    data = msgspec.msgpack.encode(message)
    stream.write(len(data).to_bytes(8, "little") + data)
    stream.flush()


def _read_frame(stream: IO[bytes]) -> bytes | None:
    head = stream.read(8)
    return stream.read(int.from_bytes(head, "little")) if len(head) == 8 else None


class Worker:
    """Does tasks, one after the other."""

    def __init__(self, registry: PluginRegistry, memory: int | None) -> None:
        self._registry = registry
        self._memory = memory
        self._backends: dict[str, StructuredOutput] = {}
        self._vocabulary = Vocabulary(tokens=(), eos_ids=())

    def do(self, task: Task) -> Done:
        """Never raises."""
        try:
            return Done(data=self._do(task))
        except MemoryError:
            return Done(error="it takes too much memory", unsupported=True)
        except FrameworkError as error:
            return Done(
                error=in_one_line(error),
                invalid=isinstance(error, InputError),
                unsupported=isinstance(error, UnsupportedError),
            )
        except BaseException as error:  # a panic of a library is no Exception
            return Done(error=told(error))

    def _do(self, task: Task) -> bytes:
        if task.do == "know":
            self._vocabulary = Vocabulary(tokens=tuple(task.tokens), eos_ids=tuple(task.eos_ids))
            return b""
        backend = self._backends.get(task.backend) or self._begin(task.backend)
        grammar = Grammar(task.structure, task.text)
        if task.do == "check":
            backend.check(grammar)
        elif task.do == "compile":
            return backend.compile(grammar, self._vocabulary)
        return b""

    def _begin(self, name: str) -> StructuredOutput:
        made = self._registry.create("structured_output", name, named=True)
        backend = self._backends[name] = cast("StructuredOutput", made)
        for library in backend.libraries:
            importlib.import_module(library)
        if self._memory is not None:
            _limit(self._memory)
        return backend


def _limit(memory: int) -> None:
    """At most `memory` bytes more than there are now."""
    try:
        import resource

        with open("/proc/self/statm") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (now + memory, hard))
    except (ImportError, OSError, ValueError):
        return  # a system without such limits: the time is limited all the same


def main() -> None:
    """Answer until standard input ends."""
    # Ctrl-C is the parent's to handle; this process ends when its input does.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    from framework.plugins.children import take_over

    first = _read_frame(sys.stdin.buffer)
    if first is None:
        return
    orders = msgspec.msgpack.decode(first, type=Orders)
    worker = Worker(take_over(orders.handover), orders.memory)
    decoder: Any = msgspec.msgpack.Decoder(Task)
    while (frame := _read_frame(sys.stdin.buffer)) is not None:
        write_frame(answers, worker.do(decoder.decode(frame)))


if __name__ == "__main__":
    main()
