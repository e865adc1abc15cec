"""Works off a batch: many requests under way, results as they come or in order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx

from framework_commands.api.errors import of_transport
from framework_commands.batch.lines import INVALID, Request, Wrong, answered, failed

Sleep = Callable[[float], Awaitable[None]]
BUSY = (429, 503)
LONGEST_WAIT = 60.0


class Sink(Protocol):
    """Where lines go."""

    def write(self, text: str, /) -> object: ...
    def flush(self) -> object: ...


@dataclass(slots=True)
class Results:
    """Writes each line whole and at once.  ordered: in the order of the requests; a line then
    waits in memory for those before it.

    written, wrong: lines, and those of them that hold no success.
    """

    sink: Sink
    ordered: bool = False
    written: int = 0
    wrong: int = 0
    _waiting: dict[int, str] = field(default_factory=dict)
    _turn: int = 0

    def add(self, place: int, line: dict[str, Any]) -> None:
        """place: of the request among those that are worked off, from 0."""
        self.wrong += line["error"] is not None
        text = json.dumps(line, ensure_ascii=False) + "\n"
        if not self.ordered:
            self._write(text)
            return
        self._waiting[place] = text
        while self._turn in self._waiting:
            self._write(self._waiting.pop(self._turn))
            self._turn += 1

    def _write(self, text: str) -> None:
        self.sink.write(text)
        self.sink.flush()
        self.written += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """Sends requests to a server.  url: for messages.  retries: how often a busy server is asked
    again, after the time that it says.  check: raises what makes going on useless."""

    http: httpx.AsyncClient
    url: str
    retries: int = 5
    check: Callable[[], None] | None = None
    sleep: Sleep = asyncio.sleep

    async def line(self, request: Request) -> dict[str, Any]:
        """The result of a request."""
        tries = 0
        while True:
            try:
                response = await self.http.post(request.url, json=request.body)
            except httpx.HTTPError as error:
                self._check()
                told = of_transport(error, self.url, begun=False)
                return failed(request.custom_id, told.failure, told.message)
            if response.status_code not in BUSY or tries == self.retries:
                break
            self._check()
            await self.sleep(_wait(response, tries))
            tries += 1
        name = response.headers.get("x-request-id")
        return answered(request, response.status_code, name, _body(response))

    def _check(self) -> None:
        if self.check is not None:
            self.check()


def _wait(response: httpx.Response, tries: int) -> float:
    try:
        seconds = float(response.headers.get("retry-after", ""))
    except ValueError:
        seconds = 2.0**tries
    return min(max(seconds, 0.0), LONGEST_WAIT)


def _body(response: httpx.Response) -> object:
    try:
        return response.json()
    except ValueError:
        return response.text


async def work(
    requests: Iterator[Request | Wrong], sender: Sender, results: Results, concurrency: int
) -> None:
    """Send all, so many at one time.  A request that fails has a line that says so, and stops no
    other.  Raises what `sender.check` raises."""
    numbered = enumerate(requests)

    async def worker() -> None:
        for place, request in numbered:
            if isinstance(request, Wrong):
                text = f"line {request.number + 1}: {request.reason}"
                results.add(place, failed(request.custom_id, INVALID, text))
            else:
                results.add(place, await sender.line(request))

    tasks = [asyncio.create_task(worker()) for _ in range(concurrency)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
