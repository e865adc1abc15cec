"""Clients that take nothing of what they get: looked at without a clock, then over a connection."""

from __future__ import annotations

import json
import socket
import time

import httpx
import pytest

from framework_http.patience import patient

SECONDS = 7.0


class Loop:
    """Timers that run when they are told to."""

    def __init__(self):
        self.timers = []

    def call_later(self, seconds, work, *arguments):
        timer = Timer(seconds, lambda: work(*arguments))
        self.timers.append(timer)
        return timer

    def pass_time(self):
        """All timers run that nobody has stopped."""
        due, self.timers = self.timers, []
        for timer in due:
            if not timer.cancelled:
                timer.work()

    @property
    def waiting(self):
        return [timer.seconds for timer in self.timers if not timer.cancelled]


class Timer:
    def __init__(self, seconds, work):
        self.seconds, self.work, self.cancelled = seconds, work, False

    def cancel(self):
        self.cancelled = True


class Transport:
    """unsent: bytes that the client has not taken."""

    def __init__(self):
        self.unsent, self.aborted = 0, False

    def get_write_buffer_size(self):
        return self.unsent

    def abort(self):
        self.aborted = True


class Flow:
    def pause_writing(self):
        pass

    def resume_writing(self):
        pass


@pytest.fixture
def connection():
    """A protocol that is in the middle of an answer."""
    kind = patient(60.0, SECONDS)
    made = kind.__new__(kind)
    made.loop, made.transport, made.flow = Loop(), Transport(), Flow()
    return made


def test_a_client_that_takes_nothing_is_left(connection):
    connection.transport.unsent = 70_000
    connection.pause_writing()
    assert connection.loop.waiting == [SECONDS]
    connection.loop.pass_time()
    assert connection.transport.aborted


def test_a_client_that_takes_a_little_each_time_is_waited_for(connection):
    connection.transport.unsent = 70_000
    connection.pause_writing()
    for _ in range(20):
        connection.transport.unsent -= 1
        connection.loop.pass_time()
        assert connection.loop.waiting == [SECONDS]
    connection.transport.unsent = 0
    connection.resume_writing()
    assert connection.loop.waiting == []
    assert not connection.transport.aborted


def test_what_comes_to_wait_is_not_taken_for_what_nobody_took(connection):
    """It took all but 10,000 bytes, and got as much again at once."""
    connection.transport.unsent = 70_000
    connection.pause_writing()
    connection.transport.unsent = 10_000
    connection.resume_writing()
    connection.transport.unsent = 75_000
    connection.pause_writing()
    connection.transport.unsent = 74_000
    connection.loop.pass_time()
    assert not connection.transport.aborted
    assert connection.loop.waiting == [SECONDS]


def opened(server, body):
    """A connection with a request whose answer nobody takes."""
    address = httpx.URL(server.url)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect((address.host, address.port))
    text = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(text)}\r\n"
    client.sendall(head.encode() + b"content-type: application/json\r\n\r\n" + text)
    return client


def wait_for(condition):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, "waited for too long"
        time.sleep(0.05)


@pytest.mark.parametrize("stream", [True, False])
def test_a_request_ends_with_the_connection_of_who_takes_nothing(serve, stream):
    """More than the buffers of the system hold: some 12 MB, or 20."""
    server = serve(root=("--plugin-option", "front_end.http.write_seconds=0.2"))
    body = {"prompt": "a" * 200, "n": 100, "temperature": 1, "stream": stream, "logprobs": 1}
    with opened(server, body), opened(server, body):
        wait_for(lambda: server.counted("generation_tokens_total") > 0)
        wait_for(lambda: server.counted("http_requests_running") == 1)  # who asks for it
        wait_for(lambda: server.counted("num_requests_running") == 0)
    answer = httpx.post(f"{server.url}/v1/completions", json={"prompt": "here"}, timeout=60)
    assert answer.json()["choices"][0]["text"] == "here"
    assert not [line for line in server.lines if "Traceback" in line]
    assert server.stop() == 0
