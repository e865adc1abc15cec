"""Keys, limits, health, and the ends of a server."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time

import httpx
import pytest

from tests.engine.troubled import HANGS, troubled_plugin


def test_health_version_and_models_tell_of_the_server(http):
    assert http.get("/health").json() == {"status": "ok"}
    assert http.get("/version").json()["version"]
    models = http.get("/v1/models").json()
    assert [model["id"] for model in models["data"]] == ["echo", "other"]
    assert http.get("/v1/models/other").json()["max_model_len"] > 0
    assert http.get("/v1/models/third").status_code == 404
    assert http.get("/nowhere").status_code == 404


def test_a_request_id_is_sent_back(http):
    response = http.post(
        "/v1/completions", json={"prompt": "a"}, headers={"x-request-id": "mine-1"}
    )
    assert response.headers["x-request-id"] == "mine-1"
    assert http.get("/health", headers={"x-request-id": "x" * 500}).headers["x-request-id"]


def test_keys_guard_everything_but_health(serve):
    server = serve("--api-key", "tenant:s3cret", "--api-key", "plain")
    with httpx.Client(base_url=server.url, timeout=60) as http:
        assert http.get("/health").status_code == 200
        for header in ({}, {"authorization": "Bearer wrong"}, {"authorization": "s3cret"}):
            response = http.post("/v1/completions", json={"prompt": "a"}, headers=header)
            assert response.status_code == 401
            assert "s3cret" not in response.text
        for key in ("s3cret", "plain"):
            headers = {"authorization": f"Bearer {key}"}
            assert http.get("/v1/models", headers=headers).status_code == 200
    assert server.stop() == 0


def test_a_body_over_the_limit_is_refused(serve):
    server = serve(root=("--plugin-option", "front_end.http.max_body_bytes=1000"))
    with httpx.Client(base_url=server.url, timeout=60) as http:
        assert http.post("/v1/completions", json={"prompt": "a" * 2000}).status_code == 413

        def parts():
            for _ in range(5):
                yield b" " * 400

        assert http.post("/v1/completions", content=parts()).status_code == 413
        assert http.post("/v1/completions", json={"prompt": "a"}).status_code == 200
    server.stop()


def told_after(server, path, body, *headers):
    """The status line for a client that says all it has to say before it listens."""
    url = httpx.URL(server.url)
    lines = (f"POST {path} HTTP/1.1", "host: x", "connection: close", *headers)
    with socket.create_connection((url.host, url.port), timeout=60) as client:
        client.sendall("\r\n".join((*lines, "", "")).encode() + body)
        return b"".join(iter(lambda: client.recv(65536), b"")).partition(b"\r\n")[0]


def test_an_answer_that_comes_before_the_body_was_read_is_seen(guarded_server):
    """A connection that is closed on unread data is reset, and the answer is lost."""
    large, key = b" " * (24 << 20), "authorization: Bearer s3cret"
    length = f"content-length: {len(large)}"
    chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(large), large)
    for status, path, body, *headers in (
        (b"413", "/v1/completions", large, length, key),
        (b"413", "/v1/completions", chunked, "transfer-encoding: chunked", key),
        (b"404", "/v1/completion", large[: 12 << 20], f"content-length: {12 << 20}", key),
        (b"401", "/v1/completions", large[: 12 << 20], f"content-length: {12 << 20}"),
    ):
        assert told_after(guarded_server, path, body, *headers).split()[1] == status


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def works(pid):
    """Whether it runs, and has not ended with nobody having asked how."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_for(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="reads /proc")
def test_a_dead_engine_makes_health_fail_and_ends_the_service(serve):
    """Field bug 28: from the moment when the core has ended, whoever asks is not told that all is
    well."""
    server = serve()
    (core,) = server.children()
    os.kill(core, signal.SIGKILL)
    wait_for(lambda: not works(core))
    with contextlib.suppress(httpx.TransportError):  # it has ended already
        assert httpx.get(f"{server.url}/health", timeout=60).status_code == 503
    assert server.process.wait(60) == 1


def test_a_core_that_hangs_in_a_step_ends_the_service_too(serve):
    """Two signs of life, which come each second."""
    plugins = (f"--plugin={key}={value}" for key, value in troubled_plugin().items())
    arguments = ("--set", "executor=troubled", "--step-timeout", "0.5")
    server = serve(*arguments, root=tuple(plugins))
    answer = httpx.post(f"{server.url}/v1/completions", json={"prompt": HANGS}, timeout=60)
    assert answer.status_code == 503
    assert "step_timeout, 0.5 s" in answer.json()["error"]["message"]
    assert server.process.wait(60) == 1


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="reads /proc")
def test_sigterm_lets_requests_end_and_leaves_no_child(serve):
    server = serve()
    (core,) = server.children()
    prompt = "served to its end " * 6
    body = {"prompt": prompt, "stream": True}
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=60) as response:
        lines = (line for line in response.iter_lines() if line)
        first = next(lines)
        server.process.send_signal(signal.SIGTERM)
        rest = list(lines)
    assert rest[-1] == "data: [DONE]"
    chunks = [json.loads(line.removeprefix("data: ")) for line in [first, *rest[:-1]]]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == prompt
    assert server.stop() == 0
    wait_for(lambda: not alive(core))


def present(server):
    """Requests that run or wait."""
    return server.counted("num_requests_running") + server.counted("num_requests_waiting")


def generated(server):
    """Tokens since the start."""
    return server.counted("generation_tokens_total")


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_ends_its_request(serve, stream):
    """Field bug 22: 400 outputs, one at a time, of which nobody waits for most."""
    server = serve("--set", "max_num_seqs=1")
    body = {"prompt": "a" * 120, "n": 400, "temperature": 1, "stream": stream}
    address = httpx.URL(server.url)
    with httpx.Client(base_url=server.url, timeout=60) as http:
        text = json.dumps(body).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(text)}\r\n"
        with socket.create_connection((address.host, address.port)) as client:
            client.sendall(head.encode() + b"content-type: application/json\r\n\r\n" + text)
            wait_for(lambda: generated(server) > 0, 60)
        wait_for(lambda: present(server) == 0, 60)
        assert generated(server) < 400 * 121
        answer = http.post("/v1/completions", json={"prompt": "still here"}).json()
        assert answer["choices"][0]["text"] == "still here"
    assert server.stop() == 0


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="reads /proc")
def test_a_second_signal_ends_at_once_and_leaves_no_child(serve):
    """The first would wait for 4000 outputs, one at a time."""
    server = serve("--set", "max_num_seqs=1")
    (core,) = server.children()
    body = {"prompt": "a" * 120, "n": 4000, "temperature": 1, "stream": True}
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=60) as response:
        lines = response.iter_lines()  # kept: at its end the stream would be closed
        next(lines)
        server.process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            server.process.wait(0.3)
        # Again, for one that comes before the first was heard is the same signal.
        while server.process.poll() is None:
            server.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.process.wait(0.5)
    wait_for(lambda: not alive(core))
    server.kill()  # after which all of its lines are here
    assert not [line for line in server.lines if "Traceback" in line]


def status(http, path="/health"):
    return http.get(path).status_code


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="reads /proc")
def test_a_dead_core_is_replaced_where_the_operator_says_so(serve):
    """Field bug 28: who waits is told, health fails, then both are as before."""
    server = serve("--on-core-death", "restart", "--set", "max_num_seqs=1")
    (core,) = server.children()
    body = {"prompt": "a" * 120, "n": 4000, "temperature": 1, "stream": True}
    with httpx.Client(base_url=server.url, timeout=60) as http:
        with http.stream("POST", "/v1/completions", json=body) as response:
            lines = (line for line in response.iter_lines() if line)
            next(lines)
            os.kill(core, signal.SIGKILL)
            *_, error, last = lines
        assert last == "data: [DONE]"
        assert json.loads(error.removeprefix("data: "))["error"]["code"] == 503
        # As long as there is no other core; tests/engine/test_watchdog.py holds that there is none.
        for refused in (
            http.get("/health"),
            http.post("/v1/completions", json={"prompt": "early"}),
        ):
            told = refused.status_code, refused.headers.get("retry-after")
            assert told in ((503, "1"), (200, None)), refused.text
        wait_for(lambda: status(http) == 200, 60)
        late = http.post("/v1/completions", json={"prompt": "late"}).json()
        assert late["choices"][0]["text"] == "late"
        assert server.counted("core_restarts_total") == 1
    address = httpx.URL(server.url)
    (another,) = server.children()
    assert server.stop() == 0
    wait_for(lambda: not alive(another), 60)
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind((address.host, address.port))
