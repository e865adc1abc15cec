"""Servers of the echo model, and servers that misbehave as told."""

from __future__ import annotations

import io
import json
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from framework.cli import main
from framework.testing.fake_model import MODEL, fake_plugins
from framework_commands.server_process import ServerProcess

PLUGINS = [f"--plugin={key}={value}" for key, value in fake_plugins().items()]
ECHO = ["--model", MODEL, "--set", "executor=echo"]
SECONDS = 100.0


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[..., str]]:
    """Starts servers of the echo model, and ends them with the session."""
    made: list[ServerProcess] = []

    def start(*arguments: str, root: tuple[str, ...] = ()) -> str:
        words = [*PLUGINS, *root, "serve", *ECHO, "--port", "0", *arguments]
        made.append(ServerProcess(words, bare=True))
        return made[-1].start(SECONDS)

    yield start
    for server in made:
        server.stop()


@pytest.fixture(scope="session")
def url(serve) -> str:
    """The address of one server for all tests."""
    return serve()


@pytest.fixture
def run(monkeypatch, capsys):
    """Run `framework ARGUMENTS`; returns (exit code, stdout, stderr without lines on imports)."""

    def call(*arguments, stdin=""):
        monkeypatch.setattr(sys, "argv", ["framework", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as exit_:
            main()
        shown = capsys.readouterr()
        lines = [line for line in shown.err.splitlines() if "importing plugin" not in line]
        return exit_.value.code or 0, shown.out, "\n".join(lines)

    return call


class Handler(BaseHTTPRequestHandler):
    """Answers as the server's `answers` say: path -> a function of (handler, body)."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self._answer({})

    def do_POST(self):
        self._answer(json.loads(self.rfile.read(int(self.headers["content-length"])) or "{}"))

    def _answer(self, body):
        known = self.server.answers.get(self.path)
        if known is None:
            self.reply(404, {"error": {"message": "nothing here"}})
        else:
            known(self, body)

    def reply(self, status, value):
        """A whole answer as JSON."""
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def events(self, *events, done=True, broken=False):
        """A stream of events; broken: the connection is cut before its end."""
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.send_header("connection", "close")
        self.end_headers()
        for event in [*events, *(["[DONE]"] if done else [])]:
            data = event if isinstance(event, str) else json.dumps(event)
            self.chunk(f"data: {data}\n\n")
        self.close_connection = True
        if not broken:
            self.wfile.write(b"0\r\n\r\n")

    def chunk(self, text):
        """A part of a stream, sent at once."""
        data = text.encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def log_message(self, *arguments):
        pass


class Quiet(ThreadingHTTPServer):
    """A client that leaves is no news."""

    daemon_threads = True

    def handle_error(self, request, client_address):
        pass


@pytest.fixture
def fake():
    """Starts a server with given answers; returns its address."""
    made = []

    def start(answers):
        server = Quiet(("127.0.0.1", 0), Handler)
        server.answers = {"/v1/models": lambda h, b: h.reply(200, {"data": [{"id": "m"}]})}
        server.answers.update(answers)
        # It looks every hundredth of a second whether it is to end.
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        made.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in made:
        server.shutdown()
        server.server_close()


def text(words, ending=None):
    """An event of a stream of completions."""
    return {"choices": [{"index": 0, "text": words, "finish_reason": ending}]}
