"""Outputs on their way to the iterators that wait for them, on one event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from framework.errors import FrameworkError

if TYPE_CHECKING:
    from framework.engine.outputs import RequestOutput


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

    def open(self, request_id: str, client_id: str) -> OutputStream:
        """A new stream.  Several requests may have one client id."""
        stream = self._streams[request_id] = OutputStream()
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
    """Outputs of one request, in order; whoever is slow finds several waiting."""

    def __init__(self) -> None:
        self._outputs: deque[RequestOutput] = deque()
        self._news = asyncio.Event()
        self._error: BaseException | None = None

    def put(self, output: RequestOutput) -> None:
        """Add the next output."""
        self._outputs.append(output)
        self._news.set()

    def fail(self, error: BaseException) -> None:
        """Nothing more will come; outputs that have are taken first."""
        self._error = error
        self._news.set()

    async def take(self) -> RequestOutput:
        """The next output.  Raises what `fail` was given."""
        while not self._outputs:
            if self._error is not None:
                raise self._error.with_traceback(None)
            self._news.clear()
            await self._news.wait()
        return self._outputs.popleft()
