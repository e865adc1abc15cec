"""One request after the other, for terminals."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import httpx

from framework_commands.api.address import Address
from framework_commands.api.errors import ApiError, of_status, of_transport
from framework_commands.api.events import Events


class Talk:
    """A client for one thread.  seconds: longest silence of the server."""

    def __init__(self, address: Address, seconds: float = 600.0) -> None:
        self.url = address.url
        self._http = address.sync_client(seconds)

    def model(self) -> str:
        """The first model of the server.  Raises ApiError."""
        with self._told():
            response = self._http.get("/v1/models")
            if response.is_error:
                raise of_status(response.status_code, response.content, self.url)
        try:
            return str(response.json()["data"][0]["id"])
        except (ValueError, LookupError, TypeError):
            raise ApiError(
                f"{self.url} has no list of models",
                failure="no models",
                expected="GET /v1/models as OpenAI has it",
                found=f"{response.text:.80}",
                mend="say --model, or correct --url",
            ) from None

    def stream(self, path: str, body: Mapping[str, Any]) -> Generator[dict[str, Any], None, None]:
        """The events of an answer; closing it ends the request.  Raises ApiError."""
        events, begun = Events(self.url), False
        with self._told(lambda: begun), self._http.stream("POST", path, json=body) as response:
            if response.is_error:
                raise of_status(response.status_code, response.read(), self.url)
            begun = True
            for line in response.iter_lines():
                event = events.push(line)
                if event is not None:
                    yield event
            wrong = events.end()
        if wrong is not None:
            raise wrong

    @contextmanager
    def _told(self, begun: Any = lambda: False) -> Generator[None, None, None]:
        try:
            yield
        except httpx.HTTPError as error:
            raise of_transport(error, self.url, begun=begun()) from error

    def close(self) -> None:
        """End the connections."""
        self._http.close()

    def __enter__(self) -> Talk:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
