"""A client of HTTP/1.1 that does what no proper one would: it counts, leaves and sends rubbish."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from urllib.parse import urlsplit


class Wire:
    """One connection, for one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, url: str) -> Wire:
        """Connect to where `url` says."""
        place = urlsplit(url)
        return cls(*await asyncio.open_connection(place.hostname, place.port, limit=2**22))

    async def ask(
        self, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> int:
        """Send a request (POST with a body, else GET; bytes go as they are); its status."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", "host: localhost"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        if body is None:
            data = b""
        else:
            lines += ["content-type: application/json", f"content-length: {len(data)}"]
        self._writer.write("\r\n".join([*lines, "", ""]).encode() + data)
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        self.headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        return int(head[0].split()[1])

    async def some(self) -> bytes:
        """What has come of the body, raw."""
        return await self._reader.read(2**16)

    async def body(self) -> bytes:
        """The rest of the answer."""
        if "content-length" in self.headers:
            return await self._reader.readexactly(int(self.headers["content-length"]))
        parts = []
        while True:
            size = int(await self._reader.readline(), 16)
            parts.append(await self._reader.readexactly(size))
            await self._reader.readline()
            if not size:
                return b"".join(parts)

    def send(self, data: bytes) -> None:
        """Bytes as they are."""
        self._writer.write(data)

    async def closed(self) -> None:
        """Wait until the other end closes."""
        while await self._reader.read(2**16):
            pass

    def leave(self) -> None:
        """Go away at once, whatever is on its way."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """Close, and wait for that."""
        self._writer.close()
        await asyncio.gather(self._writer.wait_closed(), return_exceptions=True)


def events(data: bytes) -> list[dict]:
    """The data of a stream of server-sent events, which ends as it must."""
    *found, done, rest = data.decode().split("\n\n")
    assert (done, rest) == ("data: [DONE]", ""), data[-200:]
    return [json.loads(event.removeprefix("data: ")) for event in found]
