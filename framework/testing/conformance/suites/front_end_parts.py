"""What front ends of the kit serve, and a client that speaks bytes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from framework.contracts.endpoint import Endpoint
from framework.errors import EngineDeadError, InputError, OverloadedError

if TYPE_CHECKING:
    from fastapi import APIRouter

    from framework.contracts.service import Service

HOST = "127.0.0.1"
SECRET = "what only the log may know"


class Offered(Endpoint):
    """Routes that answer, wait, fail and stream.

    services: what `routes` was called with.  waiting: a request waits.  go: lets it end.  left:
    its client went away.
    """

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.services: list[Service] = []
        self.waiting, self.go, self.left = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def routes(self, service: Service) -> APIRouter:
        """See Endpoint."""
        import fastapi

        self.services.append(service)
        router = fastapi.APIRouter()
        errors = {
            "input": InputError("the kit says no"),
            "busy": OverloadedError("the kit is busy", retry_after=7.0),
            "dead": EngineDeadError("the kit has stopped"),
            "fault": RuntimeError(SECRET),
        }

        async def hello() -> dict[str, str]:
            return {"hello": "kit"}

        async def length(request: Any) -> dict[str, int]:
            return {"length": len(await request.body())}

        async def fail(name: str) -> None:
            raise errors[name]

        async def wait(request: Any) -> dict[str, str]:
            self.waiting.set()
            leaving = asyncio.create_task(self._leaves(request))
            going = asyncio.create_task(self.go.wait())
            await asyncio.wait((leaving, going), return_when=asyncio.FIRST_COMPLETED)
            for task in (leaving, going):
                task.cancel()
            return {"waited": "to the end"}

        async def stream() -> fastapi.responses.StreamingResponse:
            return fastapi.responses.StreamingResponse(self._pieces(), media_type="text/plain")

        length.__annotations__["request"] = fastapi.Request
        wait.__annotations__["request"] = fastapi.Request
        router.get("/hello")(hello)
        router.post("/length")(length)
        router.get("/fail/{name}")(fail)
        router.get("/wait")(wait)
        router.add_api_route("/stream", stream, response_model=None)
        return router

    async def _leaves(self, request: Any) -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        self.left.set()

    async def _pieces(self) -> AsyncIterator[bytes]:
        yield b"first"
        self.waiting.set()
        await self.go.wait()
        yield b"last"


def free_port() -> int:
    """A port that nobody has now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def is_free(port: int) -> bool:
    """Whether a server may listen there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


async def exchange(port: int, data: bytes) -> bytes:
    """Send bytes, and read to the end of the connection."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(data)
        await writer.drain()
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def ask(port: int, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    """Status, and the rest of the response: headers and body."""
    raw = await exchange(port, request(path, body))
    head, _, rest = raw.partition(b"\r\n")
    parts = head.split(b" ")
    return int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0, rest


def request(path: str, body: bytes | None = None) -> bytes:
    """A request after which the connection ends."""
    head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nhost: kit\r\n"
    size = "" if body is None else f"content-length: {len(body)}\r\n"
    return f"{head}{size}connection: close\r\n\r\n".encode() + (body or b"")
