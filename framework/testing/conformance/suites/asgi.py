"""A client of ASGI applications without a socket, and a small host for an endpoint."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from framework.errors import (
    EngineDeadError,
    FrameworkError,
    InputError,
    OverloadedError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from fastapi import APIRouter, FastAPI

UNSUPPORTED = "x-kit-unsupported"
"""Header of an answer that says: the engine of the kit, a small one that writes text, cannot."""
_STATUS: tuple[tuple[type[FrameworkError], int], ...] = (
    (InputError, 400),
    (UnsupportedError, 400),
    (OverloadedError, 429),
    (EngineDeadError, 503),
)


@dataclass
class Answer:
    """What came back.  pieces: of the body.  complete: the end of the body was sent.  error: what
    the application raised.  first: set when the body begins."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    pieces: list[bytes] = field(default_factory=list)
    complete: bool = False
    error: Exception | None = None
    first: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def body(self) -> bytes:
        """The whole body."""
        return b"".join(self.pieces)

    def __str__(self) -> str:
        end = "" if self.complete else ", which does not end"
        raised = "" if self.error is None else f", {type(self.error).__name__}: {self.error}"
        return f"status {self.status}, body {self.body[:200]!r}{end}{raised}"


@dataclass(frozen=True)
class Asked:
    """A request.  body: JSON bytes, None: none.  path: as it stands in the request line."""

    method: str
    path: str
    body: bytes | None = None
    query: str = ""
    media: str = "application/json"

    def __str__(self) -> str:
        query = f"?{self.query}" if self.query else ""
        body = "" if self.body is None else f" {self.body[:120].decode('utf-8', 'replace')}"
        return f"{self.method} {self.path}{query}{body}"


def hosted(router: APIRouter, prefix: str) -> FastAPI:
    """An application of one endpoint; errors of this project become their status, as with every
    host."""
    from fastapi import FastAPI, Request
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse

    app = FastAPI()

    @app.exception_handler(FrameworkError)
    async def ours(request: Request, error: FrameworkError) -> JSONResponse:
        status = next((status for cls, status in _STATUS if isinstance(error, cls)), 500)
        found = told(str(error), status)
        if isinstance(error, UnsupportedError):
            found.headers[UNSUPPORTED] = "1"
        return found

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return told("; ".join(fault["msg"] for fault in error.errors()), 400)

    def told(message: str, status: int) -> JSONResponse:
        text = message.encode(errors="replace").decode()
        return JSONResponse({"error": {"message": text}}, status)

    app.include_router(router, prefix=prefix)
    return app


async def send(
    app: Any, asked: Asked, *, answer: Answer | None = None, gone: asyncio.Event | None = None
) -> Answer:
    """Ask an application.  answer: filled in as it comes.  gone: the client goes away when it is
    set."""
    found = answer or Answer()
    ended = asyncio.Event()
    body: list[bytes] = [asked.body or b""]

    async def receive() -> Mapping[str, Any]:
        if body:
            return {"type": "http.request", "body": body.pop(), "more_body": False}
        waiting = [asyncio.create_task((gone or ended).wait()), asyncio.create_task(ended.wait())]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
        return {"type": "http.disconnect"}

    async def take(message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            found.status = message["status"]
            pairs = message.get("headers", ())
            found.headers = {k.decode().lower(): v.decode("latin-1") for k, v in pairs}
        elif message["type"] == "http.response.body":
            found.pieces.append(bytes(message.get("body", b"")))
            found.complete = not message.get("more_body", False)
            found.first.set()
            if found.complete:
                ended.set()

    try:
        await app(_scope(asked), receive, take)
    except Exception as error:
        found.error = error
    found.first.set()
    return found


def _scope(asked: Asked) -> dict[str, Any]:
    from urllib.parse import unquote_to_bytes

    headers = [(b"host", b"kit")]
    if asked.body is not None:
        headers += [
            (b"content-type", asked.media.encode()),
            (b"content-length", str(len(asked.body)).encode()),
        ]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": asked.method,
        "scheme": "http",
        "path": unquote_to_bytes(asked.path).decode("utf-8", "replace"),
        "raw_path": asked.path.encode(),
        "query_string": asked.query.encode(),
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "state": {},
    }


def as_json(value: object) -> bytes:
    """Compact JSON, also of what JSON does not allow."""
    return json.dumps(value).encode()
