"""Bodies that take long to read are known as such before they are read."""

from __future__ import annotations

import json
import socket

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from framework_http import weight
from framework_http.weight import BRANCH, ESCAPES, Weight


def weighed(pieces):
    scales = Weight()
    for piece in pieces:
        scales.add(piece)
    return scales.total


def plainly(data):
    """The same, one byte after the other."""
    total, escapes, inside, escaped = 0, 0, False, False
    for byte in data:
        char = chr(byte)
        escapes += escaped
        if char == '"' and not escaped:
            inside = not inside
        if not inside:
            total += {",": 1, ":": BRANCH, "[": BRANCH, "{": BRANCH}.get(char, 0)
        escaped = char == "\\" and not escaped
    return total + escapes // ESCAPES


PIECES = st.lists(st.text(alphabet='",:[]{}\\a', max_size=12).map(str.encode), max_size=8)


@given(PIECES)
def test_a_text_has_no_weight_whatever_is_escaped_in_it_and_wherever_it_is_cut(pieces):
    assert weighed(pieces) == plainly(b"".join(pieces))


def test_long_pieces_are_weighed_in_short_ones(monkeypatch):
    monkeypatch.setattr(weight, "_PIECE", 3)
    data = json.dumps({"a": [1, {"b": '\\",{['}, "\\\\", [[], {}]], 'c": [': None}).encode()
    assert weighed([data]) == plainly(data) == 5 + BRANCH * (3 + 6)


def test_what_is_escaped_has_some_weight():
    assert weighed([b'"', b"\\n" * 80, b'"']) == 80 // ESCAPES


def test_a_body_of_too_many_values_is_refused_before_all_of_it_has_come(server, http):
    """Nobody can have read it by then.  What is as long and has few values is read."""
    head = "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    body = b'{"prompt": [' + b"[1]," * 2**20
    address = httpx.URL(server.url)
    with socket.create_connection((address.host, address.port), timeout=120) as client:
        client.sendall(f"{head}content-length: {len(body) + 1}\r\n\r\n".encode() + body)
        found = b""
        while b"send several requests" not in found:
            more = client.recv(65536)
            assert more, found
            found += more
    assert found.startswith(b"HTTP/1.1 413 ")
    assert b"more than 524288 values" in found
    text = {"prompt": "[1]," * 2**20}
    assert "the prompt is too long" in http.post("/v1/completions", json=text).text


def test_a_body_that_is_no_json_is_not_weighed(http):
    lists = b"[" * 2**17
    given = {"content-type": "application/octet-stream"}
    assert http.post("/v1/completions", content=lists, headers=given).status_code == 415
    given = {"content-type": "application/json"}
    assert http.post("/v1/completions", content=lists, headers=given).status_code == 413


def test_the_operator_says_how_many_values_a_body_may_have(serve):
    few = serve(root=("--plugin-option", "front_end.http.max_body_values=40"))
    ids = {"prompt": [1] * 10}
    with httpx.Client(base_url=few.url, timeout=60) as client:
        assert client.post("/v1/completions", json=ids).status_code == 200
        ids["prompt"] *= 3
        refused = client.post("/v1/completions", json=ids)
    assert refused.status_code == 413
    assert "more than 40 values" in refused.json()["error"]["message"]


def test_a_body_that_is_too_large_behind_an_answer_is_thrown_away(guarded_server):
    """The key is refused first; what the rest of the body is then changes nothing."""
    head = "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    chunk = b"10000\r\n" + b"[" * 2**16 + b"\r\n"
    address = httpx.URL(guarded_server.url)
    with socket.create_connection((address.host, address.port), timeout=120) as client:
        client.sendall(f"{head}transfer-encoding: chunked\r\nconnection: close\r\n\r\n".encode())
        for _ in range(300):  # 19 MiB
            client.sendall(chunk)
        client.sendall(b"0\r\n\r\n")
        found = b"".join(iter(lambda: client.recv(65536), b""))
    assert found.startswith(b"HTTP/1.1 401 ")
    assert found.count(b"HTTP/1.1") == 1
    assert not [line for line in guarded_server.lines if "Traceback" in line]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_body_of_another_encoding_is_not_read(http, encoding):
    """Its bytes weigh nothing behind a character that has a quotation mark for one of its bytes,
    and Python's reader takes UTF-16 and UTF-32 for what they are."""
    body = '{"prompt": ["\u2200", ' + "[], " * 100 + "[]]}"
    headers = {"content-type": "application/json"}
    answer = http.post("/v1/completions", content=body.encode(encoding), headers=headers)
    assert answer.status_code == 400
    assert "UTF-8" in answer.json()["error"]["message"]
