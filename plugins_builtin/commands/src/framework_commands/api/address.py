"""Where a server is, and how to speak to it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from framework.errors import ConfigError
from framework_commands.api.errors import KEY_VARIABLE

if TYPE_CHECKING:
    import httpx

UNIX = "unix:"


@dataclass(frozen=True, slots=True)
class Address:
    """url: without /v1, for messages too.  base: for requests.  socket: a unix socket.
    key: sent with every request."""

    url: str
    base: str
    socket: str | None
    key: str | None = field(repr=False)

    @classmethod
    def parse(cls, url: str, key: str | None = None) -> Address:
        """Read --url: http(s)://HOST:PORT, with or without /v1, or unix:PATH.  key: default, the
        variable FRAMEWORK_API_KEY.  Raises ConfigError."""
        text = url.strip().rstrip("/").removesuffix("/v1")
        given = key if key is not None else os.environ.get(KEY_VARIABLE) or None
        if text.startswith(UNIX) and not text.endswith(":"):
            return cls(text, "http://server", text.removeprefix(UNIX), given)
        if "://" not in text and text and not text.endswith(":"):
            text = f"http://{text}"
        scheme, _, rest = text.partition("://")
        if scheme not in ("http", "https") or not rest or rest.startswith(("/", ":")):
            raise ConfigError(
                "--url is no address of a server",
                expected="http://HOST:PORT, https://HOST or unix:PATH",
                found=repr(url),
            )
        return cls(text, text, None, given)

    @property
    def headers(self) -> dict[str, str]:
        """With the key, if there is one."""
        return {"authorization": f"Bearer {self.key}"} if self.key else {}

    def client(self, seconds: float, connections: int | None = None) -> httpx.AsyncClient:
        """seconds: for the whole of a silence; None of it is for the request as such.
        connections: most at one time, None is no limit."""
        import httpx

        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        transport = httpx.AsyncHTTPTransport(uds=self.socket, limits=limits)
        return httpx.AsyncClient(**self._common(seconds), transport=transport)

    def sync_client(self, seconds: float) -> httpx.Client:
        """For one request after the other."""
        import httpx

        return httpx.Client(**self._common(seconds), transport=httpx.HTTPTransport(uds=self.socket))

    def _common(self, seconds: float) -> dict[str, Any]:
        return {"base_url": self.base, "headers": self.headers, "timeout": seconds}
