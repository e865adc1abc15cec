"""Server-sent events: how the streams of all endpoints are written, and kept alive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from fastapi import Request
from starlette.responses import Response, StreamingResponse

from framework.engine.bell import Bell
from framework.errors import FrameworkError
from framework_http.faults import describe
from framework_http.leaving import gone, unless_gone

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

EVENT_STREAM = "text/event-stream"
DONE = b"data: [DONE]\n\n"
KEEP_ALIVE_SECONDS = 15.0
"""How long a stream may be silent: proxies cut connections that seem dead."""

MOST_READY = 256 * 2**10
"""Bytes of events that wait for a slow client; what comes then waits in the engine's shorter
form."""

Item = Mapping[str, Any]
JSON = msgspec.json.Encoder()
"""Of all answers.  JSON has no NaN: where one came up, it is null."""


def data(item: Item) -> bytes:
    """An event without a name."""
    return b"data: %b\n\n" % JSON.encode(item)


def named(item: Item) -> bytes:
    """An event that is called as its field `type`."""
    return b"event: %b\n%b" % (item["type"].encode(), data(item))


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How an API writes its streams.  encode: one item.  fault: an error after the first event.
    idle: when nothing came for a while.  end: behind everything, errors too."""

    encode: Callable[[Item], bytes] = data
    fault: Callable[[FrameworkError], Item] = lambda error: describe(error)[1]
    idle: bytes = b": keep-alive\n\n"
    end: bytes = b""


CHUNKS = Form(end=DONE)
"""As completions and chat completions stream."""


async def stream(
    events: AsyncGenerator[Item, None],
    request: Request,
    form: Form = CHUNKS,
    keep_alive: float = KEEP_ALIVE_SECONDS,
) -> Response:
    """A response of these events, which are closed with it.

    Raises what comes up before the first event, as an ordinary answer can still be given; what
    comes up later is an event, then the end.  If nothing comes for `keep_alive` seconds the
    response begins without an event.  A client that goes away before that ends it.
    """
    pump = _Pump(events, form, keep_alive)
    try:
        first = await unless_gone(request, pump.next())
    except BaseException:
        pump.end()
        raise
    if first is None and not pump.ended:
        pump.end()
        return gone()
    return _EventStream(pump, first)


class _Pump:
    """Runs `events` in a task, so that waiting for the next one can time out."""

    def __init__(self, events: AsyncGenerator[Item, None], form: Form, keep_alive: float) -> None:
        self._form, self._keep_alive = form, keep_alive
        self._ready: list[bytes] = []
        self._size = 0
        self._news, self._room = Bell(), asyncio.Event()
        self.ended = False
        self._error: Exception | None = None
        self._loop = asyncio.get_running_loop()
        self._idle_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._task = asyncio.create_task(self._run(events))

    async def _run(self, events: AsyncGenerator[Item, None]) -> None:
        try:
            async with aclosing(events):
                async for item in events:
                    event = self._form.encode(item)
                    self._ready.append(event)
                    self._size += len(event)
                    self._news.ring()
                    if self._size >= MOST_READY:
                        self._room.clear()
                        await self._room.wait()
        except Exception as error:
            self._error = error
        self.ended = True
        self._news.ring()

    async def next(self) -> bytes | None:
        """All events that have come meanwhile, in one piece: a client that is slower than the
        engine costs no more than one that is not.  The form's `idle` if none has; None after the
        last.  Raises what the events raise."""
        if not self._ready and not self.ended:
            self._idle_at = self._loop.time() + self._keep_alive
            if self._timer is None:
                self._timer = self._loop.call_at(self._idle_at, self._look)
            await self._news.wait()
            if not self._ready and not self.ended:
                return self._form.idle
        if self._ready:
            found = b"".join(self._ready)
            self._ready.clear()
            self._size = 0
            self._room.set()
            return found
        if self._error is not None:
            raise self._error
        return None

    def _look(self) -> None:
        """Wake who waits when nothing has come for a while.  One timer for the whole stream, which
        learns when it is due that something came meanwhile: one for each wait costs more than to
        wait."""
        self._timer = None
        if self._ready or self.ended:
            return
        if self._loop.time() < self._idle_at:
            self._timer = self._loop.call_at(self._idle_at, self._look)
        else:
            self._news.ring()

    async def lines(self, first: bytes | None) -> AsyncIterator[bytes]:
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
        if self._timer is not None:
            self._timer.cancel()


class _EventStream(StreamingResponse):
    """Ends its events also when nobody ever read one."""

    def __init__(self, pump: _Pump, first: bytes | None) -> None:
        headers = {"cache-control": "no-cache"}
        super().__init__(pump.lines(first), media_type=EVENT_STREAM, headers=headers)
        self._pump = pump

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._pump.end()
