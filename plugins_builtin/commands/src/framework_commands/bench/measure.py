"""One request to a server, and the times at which parts of its answer came."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httpx

from framework_commands.api.errors import ApiError, of_status, of_transport
from framework_commands.api.events import Events

NOTHING = "no tokens"


@dataclass(slots=True, kw_only=True)
class Measured:
    """Seconds, from when the request was sent.

    started: on the clock of `time.perf_counter`.  ttft: to the first chunk with a part of the
    answer.  latency: to the last one.  itl: from each such chunk to the next.  prompt, output:
    tokens, as the server counts them; estimated: it did not, and `output` is the number of
    chunks.  failure: in two words, None for a request that was answered whole; then the times
    are those of an answer, and of no other.  reason: the sentence.
    """

    started: float
    ttft: float = 0.0
    latency: float = 0.0
    itl: list[float] = field(default_factory=list)
    prompt: int = 0
    output: int = 0
    estimated: bool = False
    text: str = ""
    failure: str | None = None
    reason: str = ""

    @property
    def tpot(self) -> float | None:
        """Mean seconds for a token but the first; None for an answer of one."""
        return (self.latency - self.ttft) / (self.output - 1) if self.output > 1 else None


class Answer:
    """What has come of an answer: when each part of it came, the parts, and the usage."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.texts: list[str] = []
        self.usage: Mapping[str, Any] = {}
        self._end: float | None = None

    def take(self, event: Mapping[str, Any], now: float) -> None:
        """An event of the stream and when it came.  A chunk that carries no part of the answer
        (a role, an end, usage) is no token."""
        self.usage = event.get("usage") or self.usage
        parts = [part for choice in event.get("choices") or () if (part := _part(choice))]
        if parts:
            self.times.append(now)
            self.texts += parts
        if any(choice.get("finish_reason") for choice in event.get("choices") or ()):
            self._end = now

    def into(self, made: Measured) -> None:
        """Write times and counts into `made`; a failure where there was no token at all."""
        tokens = self.usage.get("completion_tokens")
        made.estimated = not isinstance(tokens, int)
        made.output = tokens if isinstance(tokens, int) else len(self.times)
        made.prompt = int(self.usage.get("prompt_tokens") or 0)
        made.text = "".join(self.texts)
        # Tokens without a text of their own, such as an end of sequence, are known by the end.
        times = self.times or ([self._end] if self._end is not None else [])
        if made.output < 1 or not times:
            made.failure, made.reason = NOTHING, "the answer held no token"
            return
        made.ttft = times[0] - made.started
        made.latency = times[-1] - made.started
        made.itl = [after - before for before, after in pairwise(times)]


def _part(choice: Mapping[str, Any]) -> str:
    """What a choice of a chunk adds to the answer, as text."""
    if choice.get("text"):
        return str(choice["text"])
    delta = choice.get("delta") or {}
    for name in ("content", "reasoning_content", "reasoning"):
        if delta.get(name):
            return str(delta[name])
    return str(delta["tool_calls"]) if delta.get("tool_calls") else ""


async def measure(http: httpx.AsyncClient, path: str, body: object, url: str) -> Measured:
    """Send one request and time its stream.  Never raises for what a server does wrong: that
    is a failure of the request."""
    events, answer, begun = Events(url), Answer(), False
    made = Measured(started=time.perf_counter())
    try:
        async with http.stream("POST", path, json=body) as response:
            if response.is_error:
                raise of_status(response.status_code, await response.aread(), url)
            begun = True
            async for line in response.aiter_lines():
                now = time.perf_counter()  # what it takes to read an event is not the server's
                event = events.push(line)
                if event is not None:
                    answer.take(event, now)
        wrong = events.end()
        if wrong is not None:
            raise wrong
    except httpx.HTTPError as error:
        _fail(made, of_transport(error, url, begun=begun))
    except ApiError as error:
        _fail(made, error)
    else:
        answer.into(made)
    return made


def _fail(made: Measured, error: ApiError) -> None:
    made.failure, made.reason = error.failure, error.message
