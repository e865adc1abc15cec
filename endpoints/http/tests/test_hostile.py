"""Raw bytes from clients that mean no good: each gets an answer below 500, or its connection ends;
the server writes no traceback and goes on."""

from __future__ import annotations

import socket
import time

import httpx
import pytest

END = "connection: close\r\n\r\n"
BODY = '{"prompt": "a"}'
HEAD = "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
CHUNKED = f"{HEAD}transfer-encoding: chunked\r\n{END}"


def post(body, path="/v1/completions", **headers):
    data = body if isinstance(body, bytes) else body.encode()
    fields = {"content-type": "application/json", "content-length": len(data), **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    return f"POST {path} HTTP/1.1\r\nhost: x\r\n{lines}{END}".encode() + data


def field(name, value):
    return post(f'{{"prompt": "a", "{name}": {value}}}')


def get(target, method="GET", version="HTTP/1.1", more=""):
    return f"{method} {target} {version}\r\nhost: x\r\n{more}{END}".encode("latin-1")


HOSTILE = {
    "an old version": get("/health", version="HTTP/1.0"),
    "no version": b"GET /health\r\n\r\n",
    "another version": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    "empty lines": b"\r\n" * 1000,
    "no host": b"GET /health HTTP/1.1\r\nconnection: close\r\n\r\n",
    "two hosts": get("/health", more="host: y\r\n"),
    "HEAD": get("/v1/models", "HEAD"),
    "OPTIONS": get("/v1/completions", "OPTIONS"),
    "OPTIONS *": get("*", "OPTIONS"),
    "CONNECT": get("x:443", "CONNECT"),
    "an unknown method": get("/health", "FROB"),
    "an absolute target": get("http://x/health"),
    "a path of odd bytes": get("/%ff%00/../.."),
    "a path that is not ASCII": get("/\xff\xfe"),
    "a long path": get("/" + "a" * 70_000),
    "a header without a name": get("/health", more="x y: z\r\n"),
    "a header with NUL": get("/health", more="x: a\0b\r\n"),
    "a header in Latin-1": get("/health", more="x-request-id: \xff\r\nauthorization: \xff\r\n"),
    "a large header": get("/health", more=f"x: {'a' * 200_000}\r\n"),
    "many headers": get("/health", more="".join(f"x{n}: y\r\n" for n in range(5000))),
    "a websocket": get("/v1/models", more="upgrade: websocket\r\nsec-websocket-version: 13\r\n"),
    "100-continue": post(BODY, expect="100-continue"),
    "another expectation": post(BODY, expect="frob"),
    "a length below 0": post(BODY, content_length=-5),
    "no number": post(BODY, content_length="x"),
    "a huge length": post(BODY, content_length=10**30),
    "length and chunks": f"{HEAD}content-length: 5\r\n{CHUNKED[len(HEAD) :]}0\r\n\r\n".encode(),
    "chunks that are none": f"{CHUNKED}zz\r\nabc\r\n".encode(),
    "a chunk below 0": f"{CHUNKED}-5\r\nabc\r\n".encode(),
    "a deadline of nan": post(BODY, x_request_deadline="nan"),
    "no UTF-8": post(b'{"prompt": "\xff\xfe"}'),
    "UTF-16": post(BODY.encode("utf-16")),
    "deep lists": post("[" * 100_000),
    "deep objects": field("extra_args", '{"a":' * 20_000 + "1" + "}" * 20_000),
    "NaN": field("temperature", "NaN"),
    "infinity": field("temperature", "Infinity"),
    "1e400": field("top_p", "1e400"),
    "a long number": field("seed", "9" * 5000),
    "a bias beyond 64 bits": field("logit_bias", '{"1": 18446744073709551616}'),
    "a penalty beyond 64 bits": field("repetition_penalty", "18446744073709551616"),
    "a deadline beyond 64 bits": field("deadline", "18446744073709551616"),
    "one key twice": post('{"prompt": "a", "prompt": [1], "n": 1, "n": 2}'),
    "text behind": post(BODY + " x"),
    "a form": post("prompt=a", content_type="application/x-www-form-urlencoded"),
    "another charset": post(BODY, content_type="application/json; charset=utf-16"),
    "no such type": post(BODY, content_type="\t"),
    **{
        f"half a character in {name}": field(name, '"\\ud800"')
        for name in ("model", "stop", "cache_salt", "request_id", "user", "\\udfff")
    },
    "half a character in a map": field("logit_bias", '{"\\ud800": "x"}'),
    "half a character in arguments": field("extra_args", '{"\\ud800": "\\ud800"}'),
    "half a character in a role": post(
        '{"messages": [{"role": "\\ud800", "content": "\\ud800"}]}', "/v1/chat/completions"
    ),
    "half a character to tokenize": post('{"prompt": "\\ud800"}', "/tokenize"),
    "ids out of range": post('{"tokens": [-1, 99999999999999999999]}', "/detokenize"),
}


def answer(server, data, cut=None):
    """What comes back until the connection ends; "" where it is reset."""
    address = httpx.URL(server.url)
    with socket.create_connection((address.host, address.port), timeout=60) as client:
        try:
            client.sendall(data[:cut])
            if cut is not None:
                client.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: client.recv(65536), b""))
        except ConnectionError:
            return b""


@pytest.mark.parametrize("case", HOSTILE)
def test_rubbish_is_answered_and_does_no_harm(server, http, case):
    found = answer(server, HOSTILE[case])
    assert not found.startswith(b"HTTP/1.1 5"), found[:300]
    assert b"Traceback" not in found
    assert http.post("/v1/completions", json={"prompt": "a"}).status_code == 200


@pytest.mark.parametrize("cut", [1, 20, 60, -10, -1])
def test_a_request_that_breaks_off_does_no_harm(server, http, cut):
    found = answer(server, post(BODY), cut)
    assert not found.startswith((b"HTTP/1.1 5", b"HTTP/1.1 200")), found[:300]
    assert http.post("/v1/completions", json={"prompt": "a"}).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("POST", "/v1/images/generations", 404, "there is no POST /v1/images/generations; "),
        ("GET", "/v1/completions", 405, "there is no GET /v1/completions; that path takes POST"),
        ("GET", "/v1/messages", 405, "there is no GET /v1/messages; that path takes POST"),
    ],
)
def test_a_route_that_is_not_there_is_named_to_clients_of_both_apis(
    http, method, path, status, message
):
    response = http.request(method, path)
    body = response.json()
    assert response.status_code == status
    assert body["type"] == "error"
    assert body["error"]["message"].startswith(message)
    assert body["error"]["code"] == status


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/messages"])
@pytest.mark.parametrize(
    ("headers", "status", "words"),
    [
        ({"content-type": "text/plain"}, 415, "application/json; found 'text/plain'"),
        ({"content-type": "application/x-www-form-urlencoded"}, 415, "application/json"),
        ({"content-type": ""}, 415, "application/json; found ''"),
        ({"content-type": "application/vnd.x+json; charset=utf-8"}, 200, ""),
        ({"content-type": "application/json", "content-encoding": "gzip"}, 400, "'gzip'"),
        ({"content-type": "application/json"}, 400, "no JSON in UTF-8"),
    ],
)
def test_a_body_that_is_not_read_as_json_is_told_why(http, path, headers, status, words):
    body = b'{"prompt": "a"}'
    if path == "/v1/messages":
        body = b'{"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}'
    sent = body if status != 400 else b"\x1f\x8b\xff"
    response = http.post(path, content=sent, headers=headers)
    assert response.status_code == status
    assert words in response.text


def test_an_unknown_field_is_told_in_our_own_words(http):
    message = http.post("/v1/completions", json={"prompt": "a", "temprature": 1}).json()
    assert message["error"]["message"].startswith("body: unknown field 'temprature' (did you mean")


def test_requests_in_one_piece_are_answered_in_order(server):
    texts = ["first", "second", "third"]
    keep = [
        post(f'{{"prompt": "{text}"}}').replace(b"connection: close\r\n", b"") for text in texts
    ]
    found = answer(server, b"".join(keep) + post(BODY))
    places = [found.index(text.encode()) for text in texts]
    assert places == sorted(places)
    assert found.count(b"HTTP/1.1 200") == 4


def test_a_client_that_takes_too_long_is_not_waited_for(serve):
    """It says nothing, half a head, half a body, or one byte after the other."""
    slow = serve(root=("--plugin-option", "front_end.http.read_seconds=0.5"))
    for data in (b"", b"POST /v1", post(BODY)[:-3], f"{CHUNKED}FFFFFFFF\r\nabc".encode()):
        assert not answer(slow, data).startswith(b"HTTP/1.1 200")
    address = httpx.URL(slow.url)
    with socket.create_connection((address.host, address.port), timeout=60) as client:
        client.settimeout(0.05)
        ended = False
        for byte in post(BODY, x="y" * 10_000):
            try:
                client.sendall(bytes([byte]))
                ended = not client.recv(100)
            except TimeoutError:
                continue
            except ConnectionError:
                ended = True
            if ended:
                break
        assert ended
    assert healthy(slow)
    assert not [line for line in slow.lines if "Traceback" in line]


def healthy(server):
    """Whether it is, once it is asked quickly enough: half a second is short for us, too."""
    end = time.monotonic() + 60
    while True:
        try:
            return httpx.get(f"{server.url}/health", timeout=60).status_code == 200
        except httpx.TransportError:
            assert time.monotonic() < end, "it answers nobody"


def test_the_log_has_no_traceback_and_no_advice_for_nothing(server):
    """Runs last: of all that was sent to this server, and of what asked for a websocket."""
    assert not [line for line in server.lines if "Traceback" in line]
    assert not [line for line in server.lines if "pip install" in line]
