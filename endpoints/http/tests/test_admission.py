"""A server that has more to do than it can."""

from __future__ import annotations

import contextlib
import json
import time

import httpx
import pytest


@contextlib.contextmanager
def busy(http, prompt="a" * 100):
    """The only slot is taken for as long as this lasts: a step takes a fifth of a second."""
    body = {"prompt": prompt, "stream": True}
    with contextlib.ExitStack() as stack:
        response = served(
            lambda: stack.enter_context(http.stream("POST", "/v1/completions", json=body))
        )
        lines = response.iter_lines()  # kept: at its end the stream would be closed
        assert next(lines).startswith("data: ")
        yield


def served(ask):
    """The response, once the slot is free: whoever went away may have it for a moment."""
    end = time.monotonic() + 60
    while (response := ask()).status_code == 503:
        assert time.monotonic() < end, "a request goes on whose client is gone"
    return response


def slow(serve, *arguments):
    delay = "--plugin-option=executor.echo.delay=0.2"
    return serve("--set", "max_num_seqs=1", *arguments, root=(delay,))


@pytest.fixture(scope="module")
def server(serve):
    return slow(serve, "--set", "queue_timeout=0.3", "--set", "max_queued_tokens=10")


@pytest.fixture
def http(server):
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


def refused(response, code):
    assert response.status_code == code, response.text
    assert int(response.headers["retry-after"]) >= 1
    assert response.json()["error"]["code"] == code
    return response.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("stream", [True, False])
def test_a_request_that_waits_too_long_is_a_503_that_says_when_to_ask_again(http, path, stream):
    messages = [{"role": "user", "content": "x"}]
    asked = {"messages": messages} if "chat" in path else {"prompt": "x"}
    with busy(http):
        response = http.post(path, json={**asked, "stream": stream})
    assert "0.3 s in the queue" in refused(response, 503)


@pytest.mark.parametrize("header", [True, False])
def test_a_deadline_is_a_field_or_a_header(http, header):
    headers = {"x-request-deadline": "0.1"} if header else {}
    fields = {} if header else {"deadline": 0.1}
    with busy(http):
        response = http.post("/v1/completions", json={"prompt": "x", **fields}, headers=headers)
    assert "deadline" in refused(response, 503)
    for wrong in ("soon", "nan", "-1"):
        headers = {"x-request-deadline": wrong}
        response = http.post("/v1/completions", json={"prompt": "x"}, headers=headers)
        assert (response.status_code, response.json()["error"]["param"]) == (400, "deadline")


def test_a_queue_that_is_full_is_a_429_that_says_when_to_ask_again(http):
    with busy(http), http.stream("POST", "/v1/completions", json={"prompt": ["x" * 6] * 2}) as late:
        assert "at most 10 tokens" in refused_stream(late, 429)
    long = {"prompt": "x" * 30, "max_tokens": 1}
    done = served(lambda: http.post("/v1/completions", json=long))
    assert done.status_code == 200, "a longer prompt may wait alone"


def refused_stream(response, code):
    response.read()
    return refused(response, code)


def test_usage_is_counted_for_each_tenant_that_has_a_name(serve):
    server = serve("--api-key", "acme:one", "--api-key", "other:two", "--api-key", "three")
    with httpx.Client(base_url=server.url, timeout=60) as http:
        for key, prompt in (("one", "abc"), ("one", "de"), ("two", "f"), ("three", "hij")):
            headers = {"authorization": f"Bearer {key}"}
            response = http.post("/v1/completions", json={"prompt": prompt}, headers=headers)
            assert response.status_code == 200, response.text
        metrics = http.get("/metrics", headers={"authorization": "Bearer three"}).text
    server.stop()
    found = {}
    for line in metrics.splitlines():
        if line.startswith("framework:tenant_"):
            name, _, rest = line.removeprefix("framework:tenant_").partition("{")
            labels, _, value = rest.partition("} ")
            tenant = dict(pair.split("=") for pair in labels.split(","))["tenant"]
            found[name, json.loads(tenant)] = float(value)
    assert found == {
        ("requests_total", "acme"): 2,
        ("requests_total", "other"): 1,
        ("prompt_tokens_total", "acme"): 5,
        ("prompt_tokens_total", "other"): 1,
        # each answer is the prompt and an end
        ("generation_tokens_total", "acme"): 7,
        ("generation_tokens_total", "other"): 2,
    }
