"""Clients that go away before they are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from fastapi import Request
from starlette.responses import Response

T = TypeVar("T")
GONE = 499
"""The status that proxies log for a client that went away; nobody reads it."""


def gone() -> Response:
    """The answer to nobody."""
    return Response(status_code=GONE)


async def unless_gone(request: Request, work: Awaitable[T]) -> T | None:
    """The result of `work`, which is cancelled when the client goes away; then None.

    The server does not cancel a plain handler for that.
    """

    async def leaves() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    task, watch = asyncio.ensure_future(work), asyncio.create_task(leaves())
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for one in (task, watch):
            one.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)
