"""The server that is measured: its model, its tokens, and the body of a request to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from framework.errors import ConfigError
from framework_commands.api.address import Address
from framework_commands.api.errors import ApiError
from framework_commands.api.talk import Talk
from framework_commands.bench.asks import COMMON, Ask, Words
from framework_commands.bench.measure import Measured, measure

PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """endpoint: a key of PATHS.  fields: of every body, beside model and length.  seconds:
    longest silence of the server."""

    address: Address
    model: str
    endpoint: str = "completions"
    ignore_eos: bool = False
    fields: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 600.0

    @property
    def chats(self) -> bool:
        """Prompts are messages."""
        return self.endpoint == "chat"

    def body(self, ask: Ask) -> dict[str, Any]:
        """Of a request that streams and ends with its counts.  Raises ConfigError for messages
        that are no chat's."""
        body: dict[str, Any] = {"model": self.model, "max_tokens": ask.output, "temperature": 0}
        messages = isinstance(ask.prompt, list) and not isinstance(ask.prompt[0], int)
        if self.chats:
            text = [{"role": "user", "content": ask.prompt}]
            body["messages"] = ask.prompt if messages else text
        elif messages:
            raise ConfigError(
                "the data set holds conversations", mend="--endpoint chat", found="completions"
            )
        else:
            body["prompt"] = ask.prompt
        if self.ignore_eos:
            body["ignore_eos"] = True
        return {**body, "stream": True, "stream_options": {"include_usage": True}, **self.fields}

    @asynccontextmanager
    async def sender(self) -> AsyncGenerator[Callable[[Ask], Any], None]:
        """A function that sends an ask and gives back what was `Measured`."""
        async with self.address.client(self.seconds) as http:

            async def send(ask: Ask) -> Measured:
                return await measure(http, PATHS[self.endpoint], self.body(ask), self.address.url)

            yield send

    def try_out(self, ask: Ask) -> None:
        """Raises ApiError unless the server answers this."""

        async def once() -> Measured:
            async with self.sender() as send:
                found: Measured = await send(ask)
                return found

        found = asyncio.run(once())
        if found.failure is not None:
            raise ApiError(
                f"the server does not answer a first request: {found.reason}",
                failure=found.failure,
                expected="tokens, so that there is something to measure",
            )

    def words(self) -> Words:
        """The server's tokens, by POST /tokenize; without that a length is one in words."""
        with self.address.sync_client(self.seconds) as http:
            ids = _tokens(http, self.model, " ".join(COMMON))
        if ids is None:
            return Words(())
        return Words(() if self.chats else ids, self._count)

    def _count(self, text: str) -> int:
        with self.address.sync_client(self.seconds) as http:
            ids = _tokens(http, self.model, text)
        return len(text.split()) if ids is None else len(ids)


def _tokens(http: httpx.Client, model: str, text: str) -> list[int] | None:
    body = {"model": model, "prompt": text, "add_special_tokens": False}
    try:
        response = http.post("/tokenize", json=body)
        found = response.json().get("tokens") if response.is_success else None
    except (httpx.HTTPError, ValueError, AttributeError):
        return None
    fine = isinstance(found, list) and all(isinstance(one, int) for one in found)
    return found if fine else None


def find_target(address: Address, model: str | None, **more: Any) -> Target:
    """model: default, the server's first.  Raises ApiError."""
    if model is None:
        with Talk(address, more.get("seconds", 600.0)) as talk:
            model = talk.model()
    return Target(address=address, model=model, **more)
