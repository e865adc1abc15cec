"""Outputs on their way to the iterators that wait for them, on one event loop."""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from io import StringIO
from typing import TYPE_CHECKING, Any, TypeVar

from framework.contracts.sampling import OutputKind
from framework.engine.bell import Bell
from framework.errors import FrameworkError

if TYPE_CHECKING:
    from framework.engine.outputs import CompletionOutput, LogprobsAt, RequestOutput

MOST_WAITING = 256
"""Outputs of one request that wait for who takes them; those after them are put together."""

T = TypeVar("T")


async def together(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of all; the first error of one ends the others and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except* FrameworkError as errors:
        raise first_error(errors) from None
    return [task.result() for task in tasks]


def first_error(errors: BaseExceptionGroup[FrameworkError]) -> FrameworkError:
    """The first error of a group, however deep it lies."""
    found: BaseException = errors
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, FrameworkError)
    return found


class Streams:
    """The streams of an engine by our own request id, and ids by what clients call them."""

    def __init__(self) -> None:
        self._streams: dict[str, OutputStream] = {}
        self._clients: dict[str, str] = {}
        self._ids: dict[str, set[str]] = {}

    def open(self, request_id: str, client_id: str, kind: OutputKind) -> OutputStream:
        """A new stream of outputs of that kind.  Several requests may have one client id."""
        stream = self._streams[request_id] = OutputStream(kind)
        self._clients[request_id] = client_id
        self._ids.setdefault(client_id, set()).add(request_id)
        return stream

    def close(self, request_id: str) -> None:
        """Nobody waits for it any more; unknown ids are ignored."""
        self._streams.pop(request_id, None)
        client_id = self._clients.pop(request_id, None)
        if client_id is None:
            return
        ids = self._ids[client_id]
        ids.discard(request_id)
        if not ids:
            del self._ids[client_id]

    def of_client(self, client_id: str) -> frozenset[str]:
        """Our ids of what a client calls so."""
        return frozenset(self._ids.get(client_id, ()))

    def put(self, request_id: str, output: RequestOutput) -> None:
        """The next output, if somebody waits for it."""
        stream = self._streams.get(request_id)
        if stream is not None:
            stream.put(output)

    def fail(self, error: BaseException) -> None:
        """Tell all who wait."""
        for stream in self._streams.values():
            stream.fail(error)

    def __len__(self) -> int:
        return len(self._streams)


class OutputStream:
    """Outputs of one request, in order; whoever is slow finds several waiting, and behind
    MOST_WAITING of them one that has all the rest: who takes nothing costs little memory."""

    def __init__(self, kind: OutputKind = OutputKind.DELTA) -> None:
        self._outputs: deque[RequestOutput] = deque()
        self._kind = kind
        self._rest: _Rest | None = None
        self._news = Bell()
        self._error: BaseException | None = None

    def put(self, output: RequestOutput) -> None:
        """Add the next output."""
        if self._error is not None:
            return
        if self._rest is None and len(self._outputs) < MOST_WAITING:
            self._outputs.append(output)
        else:
            if self._rest is None or self._kind is not OutputKind.DELTA:
                self._rest = _Rest()  # a later one tells all that an earlier one did
            self._rest.add(output)
        self._news.ring()

    def fail(self, error: BaseException) -> None:
        """Nothing more will come; outputs that have are taken first."""
        self._error = error
        self._news.ring()

    async def take(self) -> RequestOutput:
        """The next output, for one task at a time.  Raises what `fail` was given."""
        while not self._outputs:
            if self._rest is not None:
                rest, self._rest = self._rest, None
                return rest.joined()
            if self._error is not None:
                raise self._error.with_traceback(None)
            await self._news.wait()
        return self._outputs.popleft()


class _Rest:
    """Deltas put together, in a few bytes for each token."""

    def __init__(self) -> None:
        self._last: RequestOutput | None = None
        self._prompt_logprobs: list[LogprobsAt | None] | None = None
        self._outputs: dict[int, _RestOf] = {}

    def add(self, output: RequestOutput) -> None:
        """The next one."""
        self._last = output
        if output.prompt_logprobs is not None:
            self._prompt_logprobs = output.prompt_logprobs
        for one in output.outputs:
            found = self._outputs.get(one.index)
            if found is None:
                found = self._outputs[one.index] = _RestOf()
            found.add(one)

    def joined(self) -> RequestOutput:
        """All of them as one."""
        assert self._last is not None
        return replace(
            self._last,
            prompt_logprobs=self._prompt_logprobs,
            outputs=[self._outputs[index].joined() for index in sorted(self._outputs)],
        )


class _RestOf:
    """The same of one output."""

    def __init__(self) -> None:
        self._text = StringIO()
        self._token_ids = array("i")
        self._logprobs: list[LogprobsAt] = []
        self._last: CompletionOutput | None = None

    def add(self, output: CompletionOutput) -> None:
        """The next one."""
        self._text.write(output.text)
        self._token_ids.extend(output.token_ids)
        self._logprobs += output.logprobs or ()
        self._last = replace(output, text="", token_ids=[], logprobs=output.logprobs and [])

    def joined(self) -> CompletionOutput:
        """All of them as one."""
        assert self._last is not None
        return replace(
            self._last,
            text=self._text.getvalue(),
            token_ids=self._token_ids.tolist(),
            logprobs=None if self._last.logprobs is None else self._logprobs,
        )
