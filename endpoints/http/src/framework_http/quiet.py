"""uvicorn without its own view of signals."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress

import uvicorn

_PATIENCE = 1.0
"""Seconds for the end of the application when everything has to end at once."""


class QuietServer(uvicorn.Server):
    """Whoever runs the engine decides what signals mean; uvicorn would catch them, and raise them
    once more at its end."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave the handlers as they are."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, but the application hears of its end also where the server cannot listen
        on a unix socket: it would be cancelled while it waits for that."""
        try:
            await super().startup(sockets)
        except OSError:
            await self.lifespan.shutdown()
            raise

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, but the application hears of a forced end too: it would be cancelled
        while it waits for its end, and log that as a fault."""
        await super().shutdown(sockets)
        if self.force_exit:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.lifespan.shutdown(), _PATIENCE)
