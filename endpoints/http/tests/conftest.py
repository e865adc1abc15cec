"""A server of the echo model, in a process of its own, with its core in another."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from framework.testing.served import Served, start_server


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[..., Served]]:
    """Starts servers, and ends them with the session."""
    made: list[Served] = []

    def make(*arguments: str, root: tuple[str, ...] = ()) -> Served:
        made.append(start_server(*arguments, root=root))
        return made[-1]

    yield make
    for server in made:
        server.kill()


@pytest.fixture(scope="session")
def server(serve: Callable[..., Served]) -> Served:
    """One for all tests that leave it as it was."""
    return serve("--set", "served_model_names=[echo, other]")


@pytest.fixture(scope="session")
def http(server: Served) -> Iterator[httpx.Client]:
    """A client of it."""
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def parsing_server(serve: Callable[..., Served]) -> Served:
    """One that looks for tools and reasoning."""
    return serve("--tool-parser", "hermes", "--reasoning-parser", "qwen3")


@pytest.fixture(scope="session")
def guarded_server(serve: Callable[..., Served]) -> Served:
    """One that asks for the key "s3cret", and takes its time: one request, a twentieth of a
    second for each token."""
    delay = "--plugin-option=executor.echo.delay=0.05"
    return serve("--api-key", "tenant:s3cret", "--set", "max_num_seqs=1", root=(delay,))


def named_events(response: httpx.Response) -> list[dict[str, Any]]:
    """The data of a stream in which each event is called as its field `type`."""
    assert response.status_code == 200, response.read()
    assert response.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in response.iter_lines() if line]
    assert len(lines) % 2 == 0
    found = [json.loads(line.removeprefix("data: ")) for line in lines[1::2]]
    assert [line.removeprefix("event: ") for line in lines[::2]] == [e["type"] for e in found]
    return found


@pytest.fixture(scope="session")
def read_events() -> Callable[[httpx.Response], list[dict[str, Any]]]:
    """See `named_events`."""
    return named_events
