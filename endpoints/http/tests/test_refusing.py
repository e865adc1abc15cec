"""Bytes that are no request: their sender is told what is wrong with them, and nothing breaks."""

from __future__ import annotations

import json
import socket

import httpx
import pytest

HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n\r\n"


def told(server, data, *more):
    """All that comes back to who sends `data`, and when something has come back each of `more`."""
    url = httpx.URL(server.url)
    found = b""
    with socket.create_connection((url.host, url.port), timeout=60) as client:
        client.sendall(data)
        for piece in more:
            found += client.recv(2**16)
            client.sendall(piece)
        return found + b"".join(iter(lambda: client.recv(2**16), b""))


@pytest.mark.parametrize(
    ("data", "status", "words"),
    [
        (b"BLAH\r\n\r\n", 400, "illegal request line"),
        (b"GET /health HTTP/1.1\r\n\r\n", 400, "Host"),
        (b"GET /health HTTP/1.1\r\nhost: x\r\nx y: 1\r\n\r\n", 400, "header"),
        (b"GET /health HTTP/1.1\r\nhost: x\r\nx: %b\r\n\r\n" % (b"a" * 2**22), 431, "larger than"),
        (HEAD + b"content-length: x\r\n\r\n", 400, "Content-Length"),
        (HEAD + b"transfer-encoding: gzip\r\n\r\n", 501, "Transfer-Encoding"),
        (HEAD + CHUNKED + b"zz\r\n", 400, "chunk"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "illegal request line"),
    ],
)
def test_what_is_no_request_is_answered_as_an_api_does(server, data, status, words):
    head, _, body = told(server, data).partition(b"\r\n\r\n")
    assert int(head.split()[1]) == status
    assert b"application/json" in head
    error = json.loads(body)["error"]
    assert error["code"] == status
    assert words in error["message"]


def test_a_body_that_breaks_off_behind_its_answer_is_nobodys_fault(server):
    for path, status in ((b"/nowhere", b"404"), (b"/v1/completions", b"413")):
        head = HEAD.replace(b"/v1/completions", path)
        much = b" " * (17 << 20 if status == b"413" else 3)
        body = b"%x\r\n%b\r\n" % (len(much), much)
        assert told(server, head + CHUNKED + body, b"zz\r\n" * 9).split()[1] == status
    assert httpx.get(f"{server.url}/health", timeout=60).status_code == 200
    assert not [line for line in server.lines if "Traceback" in line]
