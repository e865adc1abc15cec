"""A server of the echo model, in a process of its own, with its core in another."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from framework.testing.fake_model import MODEL, fake_plugins


@dataclass
class Server:
    """process: of the front end.  url: where it listens."""

    process: subprocess.Popen[str]
    url: str

    def stop(self, number: int = signal.SIGTERM, timeout: float = 20) -> int:
        """Send a signal and wait for the end; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout)

    def counted(self, name: str, *labels: str) -> float:
        """The sum of a metric over all that has these labels, each as `name="value"`."""
        text = httpx.get(f"{self.url}/metrics", timeout=60).text
        found = [line for line in text.splitlines() if re.match(rf"framework:{name}[{{ ]", line)]
        return sum(float(f.rpartition(" ")[2]) for f in found if all(x in f for x in labels))


def start(*arguments: str, root: tuple[str, ...] = ()) -> Server:
    plugins = [f"--plugin={key}={value}" for key, value in fake_plugins().items()]
    command = [
        *(sys.executable, "-c", "from framework.cli import main; main()"),
        *plugins,
        *root,
        *("serve", "--model", MODEL, "--set", "executor=echo", "--port", "0"),
        *arguments,
    ]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FRAMEWORK_")}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        found = re.search(r"listening on (\S+)", line)
        if found:
            return Server(process, found[1])
    raise AssertionError(f"the server did not start: {''.join(lines)}")


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[..., Server]]:
    """Starts servers, and ends them with the session."""
    made: list[Server] = []

    def make(*arguments: str, root: tuple[str, ...] = ()) -> Server:
        made.append(start(*arguments, root=root))
        return made[-1]

    yield make
    for server in made:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()


@pytest.fixture(scope="session")
def server(serve: Callable[..., Server]) -> Server:
    """One for all tests that leave it as it was."""
    return serve("--set", "served_model_names=[echo, other]")


@pytest.fixture(scope="session")
def http(server: Server) -> Iterator[httpx.Client]:
    """A client of it."""
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def parsing_server(serve: Callable[..., Server]) -> Server:
    """One that looks for tools and reasoning."""
    return serve("--tool-parser", "hermes", "--reasoning-parser", "qwen3")


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
