"""Counts the requests of the server, for /metrics."""

from __future__ import annotations

import asyncio
from collections import Counter as Counts
from collections.abc import Iterator
from typing import TYPE_CHECKING

from framework.contracts.stat_logger import Counter, Gauge, Metric
from framework_http.leaving import GONE

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

METHODS = frozenset(("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"))
OTHER = "other"


class HttpCounts:
    """Requests by route, method and status, and those that are being answered.  What is not known
    is counted as one, so that clients cannot make up labels.  Used on one event loop."""

    def __init__(self) -> None:
        self.running = 0
        self._ended: Counts[tuple[str, str, int]] = Counts()

    def end(self, scope: Scope, status: int) -> None:
        """A request has got its answer."""
        route = getattr(scope.get("route"), "path", OTHER)
        method = scope["method"] if scope["method"] in METHODS else OTHER
        self._ended[route, method, status] += 1

    def read(self) -> Iterator[Metric]:
        """As it is now; on the event loop."""
        for (route, method, status), count in self._ended.items():
            labels = {"handler": route, "method": method, "status": str(status)}
            help = "Requests that were answered."
            yield Counter(name="http_requests", help=help, value=count, labels=labels)
        for name, help, value in (
            ("http_requests_running", "Requests that are being answered.", self.running),
            ("event_loop_tasks", "Tasks of the front end.", len(asyncio.all_tasks())),
        ):
            yield Gauge(name=name, help=help, value=value)


class Counting:
    """Middleware that counts."""

    def __init__(self, app: ASGIApp, counts: HttpCounts) -> None:
        self._app, self._counts = app, counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = GONE

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._counts.running += 1
        try:
            await self._app(scope, receive, noting)
        except Exception:
            status = 500
            raise
        finally:
            self._counts.running -= 1
            self._counts.end(scope, status)
