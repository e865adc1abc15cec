"""A wait of one task for news that another piece of the same loop brings."""

from __future__ import annotations

import asyncio


class Bell:
    """As asyncio.Event, for one task that looks for news before it waits: a ring that nobody waits
    for is forgotten.  It takes half as long, and is paid twice for each token of a stream."""

    __slots__ = ("_waiter",)

    def __init__(self) -> None:
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        """Wake who waits."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def wait(self) -> None:
        """Until the next ring."""
        waiter = self._waiter = asyncio.get_running_loop().create_future()
        await waiter
