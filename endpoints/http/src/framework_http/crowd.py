"""How many requests are answered at one time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fastapi.responses import JSONResponse

from framework_http.faults import refusal
from framework_http.places import route_path

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


class Crowd:
    """Answers 503 while `most` requests are being answered, but for paths that `is_public`: who
    asks whether the server is well has to hear that it is.

    uvicorn's own limit counts connections as well, so that idle ones keep everybody out, and its
    answer is none that a client of an API can read.
    """

    def __init__(self, app: ASGIApp, most: int, is_public: Callable[[str], bool]) -> None:
        self._app, self._most, self._is_public = app, most, is_public
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http" or self._is_public(route_path(scope)):
            await self._app(scope, receive, send)
            return
        if self._running >= self._most:
            message = f"the server is busy: it answers {self._most} requests at one time; ask again"
            body = refusal(message, "service_unavailable_error", 503)
            await JSONResponse(body, 503, {"retry-after": "1"})(scope, receive, send)
            return
        self._running += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._running -= 1
