"""`front_end:plain_http`: HTTP/1.1 with nothing but asyncio, one request for each connection."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from pydantic import BaseModel, Field

from framework import errors
from framework.contracts.front_end import FrontEnd, Mounted
from framework.plugins.routes import Route, check_routes

if TYPE_CHECKING:
    from framework.contracts.service import Service

STATUS = {errors.InputError: 400, errors.OverloadedError: 429, errors.EngineDeadError: 503}
STATUS[errors.UnsupportedError] = 400
HTTP = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http"}
MOST = 1 << 20  # bytes of a body


class Options(BaseModel):
    port: int = Field(default=8002, ge=0, le=65535, description="Port on this machine.")


class PlainHttp(FrontEnd):
    """Serves endpoints over HTTP with nothing but asyncio."""

    Options: ClassVar[type[BaseModel] | None] = Options

    async def serve(
        self, service: Service, endpoints: Sequence[Mounted], stop: asyncio.Event
    ) -> None:
        """See FrontEnd."""
        app, port = build(service, endpoints), cast("Options", self.options).port
        busy: dict[asyncio.Task[Any], bool] = {}  # of connections: a request has come

        async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = cast("asyncio.Task[Any]", asyncio.current_task())
            busy[task] = False
            try:
                scope, body = await read(reader)
                busy[task] = True
                await app(scope, receiver(reader, body), sender(writer))
            except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, OSError):
                writer.write(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n")
            except (Exception, asyncio.CancelledError):
                pass  # FastAPI has answered 500 and raises once more; or all is ended
            finally:
                busy.pop(task)
                writer.close()

        try:
            server = await asyncio.start_server(serve_one, "127.0.0.1", port)
        except OSError as error:
            raise errors.ConfigError(f"cannot listen: {error}", found=port) from error
        try:
            await stop.wait()
            server.close()
            for task in (task for task, has_one in busy.items() if not has_one):
                task.cancel()
            await asyncio.gather(*busy, return_exceptions=True)
        finally:
            server.close()
            for task in busy:
                task.cancel()


def build(service: Service, endpoints: Sequence[Mounted]) -> Any:
    """All endpoints at their places.  Raises PluginError for two with one route."""
    from fastapi import FastAPI, Request
    from fastapi.responses import JSONResponse

    app, routes = FastAPI(), []
    for mounted in endpoints:
        router = mounted.endpoint.routes(service)
        for route in router.routes:
            path = mounted.prefix + getattr(route, "path", "")
            methods = getattr(route, "methods", None) or ("*",)
            routes += [Route(mounted.key, method, path) for method in methods]
        app.include_router(router, prefix=mounted.prefix)
    check_routes(routes)

    @app.exception_handler(errors.FrameworkError)
    async def told(request: Request, error: errors.FrameworkError) -> JSONResponse:
        status = next((STATUS[cls] for cls in STATUS if isinstance(error, cls)), 500)
        headers = {"retry-after": "1"} if status == 429 else None
        return JSONResponse({"error": {"message": str(error)}}, status, headers)

    return app


async def read(reader: asyncio.StreamReader) -> tuple[dict[str, Any], bytes]:
    """Scope and body of a request.  Raises ValueError for what is none."""
    line, *lines = (await reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
    method, target, version = line.split(b" ")
    pairs = [(key.lower(), value.strip()) for key, _, value in (h.partition(b":") for h in lines)]
    size = int(dict(pairs).get(b"content-length", b"0"))
    path, _, query = target.partition(b"?")
    if not 0 <= size <= MOST or not version.startswith(b"HTTP/1"):
        raise ValueError("too large, or no HTTP")
    place = {"method": method.decode(), "path": path.decode(), "query_string": query}
    scope = {**HTTP, **place, "headers": pairs, "root_path": "", "state": {}}
    return scope, await reader.readexactly(size)


def receiver(reader: asyncio.StreamReader, body: bytes) -> Any:
    """The body first, then the end of the connection."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Mapping[str, Any]:
        if messages:
            return messages.pop()
        while await reader.read(1024):
            pass
        return {"type": "http.disconnect"}

    return receive


def sender(writer: asyncio.StreamWriter) -> Any:
    """Writes the response as it comes; its end is that of the connection."""

    async def send(message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            lines = [b"HTTP/1.1 %d " % message["status"], b"connection: close"]
            lines += [b"%b: %b" % pair for pair in message["headers"]]
            writer.write(b"\r\n".join([*lines, b"", b""]))
        else:
            writer.write(message.get("body", b""))
        await writer.drain()

    return send
