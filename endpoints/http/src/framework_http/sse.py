"""Server-sent events: how the streams of all endpoints are written, and kept alive."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.responses import Response, StreamingResponse

from framework.errors import FrameworkError
from framework_http.faults import describe

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

EVENT_STREAM = "text/event-stream"
DONE = "data: [DONE]\n\n"
KEEP_ALIVE_SECONDS = 15.0
"""How long a stream may be silent: proxies cut connections that seem dead."""

Item = Mapping[str, Any]


def data(item: Item) -> str:
    """An event without a name.  JSON has no NaN: where one came up, it is an error of ours."""
    return f"data: {json.dumps(item, ensure_ascii=False, allow_nan=False)}\n\n"


def named(item: Item) -> str:
    """An event that is called as its field `type`."""
    return f"event: {item['type']}\n{data(item)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How an API writes its streams.  encode: one item.  fault: an error after the first event.
    idle: when nothing came for a while.  end: behind everything, errors too."""

    encode: Callable[[Item], str] = data
    fault: Callable[[FrameworkError], Item] = lambda error: describe(error)[1]
    idle: str = ": keep-alive\n\n"
    end: str = ""


CHUNKS = Form(end=DONE)
"""As completions and chat completions stream."""


async def stream(
    events: AsyncGenerator[Item, None],
    form: Form = CHUNKS,
    keep_alive: float = KEEP_ALIVE_SECONDS,
) -> Response:
    """A response of these events, which are closed with it.

    Raises what comes up before the first event, as an ordinary answer can still be given; what
    comes up later is an event, then the end.  If nothing comes for `keep_alive` seconds the
    response begins without an event.
    """
    pump = _Pump(events, form, keep_alive)
    try:
        first = await pump.next()
    except BaseException:
        pump.end()
        raise
    return _EventStream(pump, first)


class _Pump:
    """Runs `events` in a task, so that waiting for the next one can time out."""

    def __init__(self, events: AsyncGenerator[Item, None], form: Form, keep_alive: float) -> None:
        self._form, self._keep_alive = form, keep_alive
        self._queue: asyncio.Queue[str | Exception | None] = asyncio.Queue()
        self._task = asyncio.create_task(self._run(events))

    async def _run(self, events: AsyncGenerator[Item, None]) -> None:
        try:
            async with aclosing(events):
                async for item in events:
                    self._queue.put_nowait(self._form.encode(item))
            self._queue.put_nowait(None)
        except Exception as error:
            self._queue.put_nowait(error)

    async def next(self) -> str | None:
        """The next event, or the form's `idle`; None after the last.  Raises what the events
        raise."""
        try:
            async with asyncio.timeout(self._keep_alive):
                found = await self._queue.get()
        except TimeoutError:
            return self._form.idle
        if isinstance(found, Exception):
            raise found
        return found

    async def lines(self, first: str | None) -> AsyncIterator[str]:
        """`first`, all that follows, and the end."""
        event = first
        try:
            while event is not None:
                yield event
                event = await self.next()
        except FrameworkError as error:
            yield self._form.encode(self._form.fault(error))
        if self._form.end:
            yield self._form.end

    def end(self) -> None:
        """Nobody waits any more."""
        self._task.cancel()


class _EventStream(StreamingResponse):
    """Ends its events also when nobody ever read one."""

    def __init__(self, pump: _Pump, first: str | None) -> None:
        headers = {"cache-control": "no-cache"}
        super().__init__(pump.lines(first), media_type=EVENT_STREAM, headers=headers)
        self._pump = pump

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._pump.end()
