"""What a server adds to the engine, with a model that costs nothing: `python -m
tests.serving.overhead`.

Prints tokens per second through one front end (many streams at a time), what of its process time a
token takes, and for one stream after another the median time per token and per request beside that
of `LLM` without a server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import selectors
import socket
import statistics
import time
from contextlib import ExitStack
from urllib.parse import urlsplit

from framework import LLM, SamplingParams
from framework.testing.fake_model import MODEL, fake_plugins
from framework.testing.served import Served, start_server
from tests.serving.wire import Wire

TICKS = os.sysconf("SC_CLK_TCK")
ROOT = (
    "--plugin-option=executor.echo.max_model_len=512",
    "--plugin-option=executor.echo.num_pages=16384",
)
"""Room for all streams at a time."""
LENGTH = 200
"""Tokens of a prompt and of its answer."""


def processor_seconds(pid: int) -> float:
    """Of all threads of a process."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def flood(url: str, streams: int, rounds: int) -> tuple[int, float]:
    """Tokens that were streamed, and seconds.

    Each stream asks again as soon as it has its answer.  The client counts what it got when all is
    over: here it has to share a processor with the core, and one that took every answer apart would
    be the slowest of the three.
    """
    place = urlsplit(url)
    body = json.dumps({"prompt": "x" * LENGTH, "max_tokens": LENGTH, "stream": True}).encode()
    head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    question = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
    address = str(place.hostname), place.port or 80
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for _ in range(streams):
            one = stack.enter_context(socket.create_connection(address))
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(one, selectors.EVENT_READ, [])
        _round(selector, question, 1)  # connections and caches are warm
        start = time.perf_counter()
        parts = _round(selector, question, rounds)
        seconds = time.perf_counter() - start
    answers = b"".join(parts)
    assert answers.count(b"HTTP/1.1 200 OK") == streams * rounds
    return answers.count(b"data: {"), seconds


def _round(selector: selectors.BaseSelector, question: bytes, rounds: int) -> list[bytes]:
    """What every stream is answered to `rounds` questions."""
    left: dict[int, int] = {}
    for key in selector.get_map().values():
        left[key.fd] = rounds
        key.fileobj.sendall(question)  # type: ignore[union-attr]
    parts: list[bytes] = []
    while left:
        for key, _ in selector.select(60):
            data = key.fileobj.recv(2**18)  # type: ignore[union-attr]
            parts.append(data)
            # An answer ends with an empty chunk, which nothing within one looks like.
            key.data[:] = [(key.data[0] if key.data else b"")[-4:] + data[-5:]]
            if not data or key.data[0].endswith(b"0\r\n\r\n"):
                left[key.fd] -= 1
                if left[key.fd]:
                    key.fileobj.sendall(question)  # type: ignore[union-attr]
                else:
                    del left[key.fd]
    return parts


async def alone(url: str, requests: int) -> float:
    """Median seconds of one streamed request, nobody else there."""
    body = {"prompt": "x" * LENGTH, "max_tokens": LENGTH, "stream": True}
    return await median(url, body, requests)


async def median(url: str, body: object, requests: int) -> float:
    wire, taken = await Wire.open(url), []
    for _ in range(requests):
        start = time.perf_counter()
        assert await wire.ask("/v1/completions", body) == 200
        await wire.body()
        taken.append(time.perf_counter() - start)
    await wire.close()
    return statistics.median(taken)


def offline(tokens: int, requests: int) -> float:
    """Median seconds of one request of `LLM`."""
    llm = LLM(MODEL, plugins=fake_plugins(), executor="echo")
    sampling, taken = SamplingParams(max_tokens=tokens), []
    for _ in range(requests):
        start = time.perf_counter()
        llm.generate("x" * LENGTH, sampling, use_tqdm=False)
        taken.append(time.perf_counter() - start)
    llm.close()
    return statistics.median(taken)


def measure(server: Served, streams: int = 64, rounds: int = 2) -> dict[str, float]:
    """tokens_per_second; front_end_us_per_token, core_us_per_token: process time;
    added_ms_per_request, of one token; added_us_per_token, of those after it."""
    (core,) = server.children()
    before = [processor_seconds(pid) for pid in (server.process.pid, core)]
    count, seconds = flood(server.url, streams, rounds)
    after = [processor_seconds(pid) for pid in (server.process.pid, core)]
    # The round that warms up counts in process time, too.
    every = count * (rounds + 1) / rounds
    front, core_time = (1e6 * (b - a) / every for a, b in zip(before, after, strict=True))
    short = {"prompt": "x" * LENGTH, "max_tokens": 1, "stream": True}
    one = asyncio.run(median(server.url, short, 40)) - offline(1, 40)
    long = asyncio.run(alone(server.url, 10)) - offline(LENGTH, 10)
    return {
        "tokens_per_second": count / seconds,
        "front_end_us_per_token": front,
        "core_us_per_token": core_time,
        "added_ms_per_request": 1e3 * one,
        "added_us_per_token": 1e6 * (long - one) / (LENGTH - 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    chosen = parser.parse_args()
    server = start_server(root=ROOT)
    try:
        found = measure(server, chosen.streams, chosen.rounds)
    finally:
        server.kill()
    print(json.dumps({name: round(value, 2) for name, value in found.items()}, indent=1))


if __name__ == "__main__":
    main()
