"""Requests that no client should send: none of them is a fault of the server, which lives on."""

from __future__ import annotations

import base64
import io
import json

import httpx
import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from framework.testing.occupant import WIDTH
from framework.testing.served import start_server
from framework_http.openai.chat import ChatFields
from framework_http.openai.completions import CompletionFields
from tests.serving.wire import events

PATHS = {"/v1/completions": CompletionFields, "/v1/chat/completions": ChatFields}
FEW, MANY = 60, 3000
"""Examples in `make test` and in `make test-long`."""


def examples(count):
    """The same ones in each run, and no more than that: a slow machine is not a fault."""
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )


@pytest.fixture(scope="module")
def http():
    parsers = ("--tool-parser", "hermes", "--reasoning-parser", "qwen3")
    templates = "--plugin-option=endpoint.chat.client_templates=true"
    server = start_server(*parsers, root=(templates,))
    # n may be some 16,000: on a busy machine their tokens take minutes, which is no fault.
    with httpx.Client(base_url=server.url, timeout=600) as client:
        yield client
        # It lives, holds nothing and has logged no fault.
        answer = client.post("/v1/completions", json={"prompt": "alive"}).json()
        assert answer["choices"][0]["text"] == "alive"
    assert server.counted("num_requests_running") == 0
    assert server.counted("http_requests_total", 'status="5') == 0
    assert server.stop() == 0
    assert "Traceback" not in "".join(server.lines)


def send(http, path, body):
    """A body as JSON of the loosest kind: NaN, huge numbers and lone surrogates too."""
    headers = {"content-type": "application/json"}
    response = http.post(path, content=json.dumps(body).encode(), headers=headers)
    assert response.status_code < 500, (path, body, response.text)
    if response.status_code >= 400:
        error = response.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["code"] == response.status_code
        return error["param"]
    if body.get("stream") is True:
        assert all(
            event.get("error", {}).get("code", 0) < 500 for event in events(response.content)
        )
    else:
        assert response.json()["choices"]
    return SERVED


SERVED = "served"
NUMBERS = st.one_of(
    st.sampled_from([0, -1, 1, 2, 2**31, 2**63, -(2**63), 10**30, 0.5, 1e308, 1e-308]),
    st.sampled_from([float("nan"), float("inf"), float("-inf")]),
    st.integers(),
    st.floats(),
)
TEXTS = st.one_of(
    st.sampled_from(
        ["", "\x00", "\ud800", "🙂", "auto", "none", "required", "a" * 3000, "{{ x }}"]
    ),
    st.text(max_size=20),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=6,
)
ROLES = st.sampled_from(["system", "developer", "user", "assistant", "tool", "", "other"])
CALLS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "id": VALUES,
            "type": st.sampled_from(["function", "other"]),
            "function": st.one_of(
                VALUES, st.fixed_dictionaries({"name": TEXTS, "arguments": VALUES})
            ),
        },
    ),
    max_size=2,
)
PARTS = st.lists(
    st.one_of(VALUES, st.fixed_dictionaries({"type": st.just("text"), "text": VALUES})), max_size=3
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.one_of(ROLES, VALUES)},
        optional={
            "content": st.one_of(st.none(), TEXTS, PARTS, VALUES),
            "tool_calls": st.one_of(CALLS, VALUES),
            "tool_call_id": VALUES,
            "name": VALUES,
        },
    ),
    max_size=4,
)
TOOLS = st.lists(
    st.one_of(
        VALUES,
        st.fixed_dictionaries(
            {
                "type": st.just("function"),
                "function": VALUES | st.fixed_dictionaries({"name": TEXTS}),
            }
        ),
    ),
    max_size=2,
)


def npy(*shape):
    """An `.npy` file of numbers."""
    file = io.BytesIO()
    np.save(file, np.ones(shape, np.float16))
    return file.getvalue()


def damaged(file):
    """The file with a few bytes that are others, or cut off, or more behind it."""
    places = st.integers(0, len(file))
    return st.builds(
        lambda at, new, behind: file[:at] + new + file[at + behind :],
        places,
        st.binary(max_size=4) | st.sampled_from([b"(", b"9" * 30, b"-", b"\n"]),
        st.integers(0, 8) | places,
    )


FILES = st.one_of(
    st.just(npy(3, WIDTH)),
    st.sampled_from([npy(2, WIDTH + 1), npy(0, WIDTH), npy(WIDTH), npy(9000, WIDTH)]),
    damaged(npy(2, WIDTH)),
    st.binary(max_size=40),
).map(lambda file: base64.b64encode(file).decode())
EMBEDS = FILES | st.lists(FILES, max_size=3)
SPECIAL = {
    "prompt_embeds": EMBEDS,
    "messages": MESSAGES,
    "tools": TOOLS,
    "prompt": st.lists(st.integers(-2, 300) | NUMBERS | TEXTS, max_size=5),
    "n": st.integers(-1, 6),  # a large one is served, and takes its time
    "max_tokens": st.integers(-1, 300),
    "logit_bias": st.dictionaries(TEXTS | st.integers(-1, 300).map(str), NUMBERS, max_size=3),
}


def short(deadline):
    """A machine may be too slow for it, and then says so with a 503."""
    return isinstance(deadline, int | float) and 0 <= deadline < 600


def bodies(fields):
    """A request that is served, with up to three fields that may be anything."""
    names = sorted(fields.model_fields)
    valid = st.just({"prompt": "abc"}) | EMBEDS.map(lambda files: {"prompt_embeds": files})
    if "messages" in names:
        valid = st.just({"messages": [{"role": "user", "content": "abc"}]})

    def change(name):
        values = st.one_of(SPECIAL[name], VALUES) if name in SPECIAL else VALUES
        if name == "deadline":
            values = values.filter(lambda value: not short(value))
        return st.tuples(st.just(name), values)

    changes = st.lists(st.sampled_from(names).flatmap(change), min_size=1, max_size=3)
    return st.builds(lambda base, some: {"max_tokens": 8, **base, **dict(some)}, valid, changes)


def fuzz(http, path, count):
    """(a body, what of it was wrong or SERVED) of all that was tried."""
    seen = []

    @examples(count)
    @given(bodies(PATHS[path]))
    def run(body):
        seen.append((body, send(http, path, body)))

    run()
    return seen


@pytest.mark.parametrize("path", PATHS)
def test_any_value_of_any_field_is_no_fault_of_the_server(http, path):
    """Field bug 23.  Prompts of each form are tried, and get to where they are read."""
    seen = fuzz(http, path, FEW)
    for name in {"messages", "prompt", "prompt_embeds"} & set(PATHS[path].model_fields):
        ends = {end for body, end in seen if name in body}
        assert SERVED in ends, name
    assert any(end == "prompt_embeds" for _, end in seen) is ("prompt" in PATHS[path].model_fields)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("path", PATHS)
def test_any_value_of_any_field_many_times(http, path):
    fuzz(http, path, MANY)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("body", [[], [1], None, "text", 3, True, {}])
def test_a_body_that_is_no_request_is_a_400(http, path, body):
    """Field bug 23: arrays and null among them."""
    response = http.post(path, json=body)
    assert response.status_code == 400, response.text


def documented(http, count):
    schema = schemathesis.openapi.from_dict(http.get("/openapi.json").json())
    seen = []
    for found in schema.get_all_operations():
        operation = found.ok()
        seen.append(operation.path)

        @examples(count)
        @given(case=operation.as_strategy())
        def run(case):
            if isinstance(case.body, dict) and short(case.body.get("deadline")):
                del case.body["deadline"]
            if isinstance(case.body, dict) and case.body.get("prompt_embeds") is not None:
                case.body.pop("prompt", None)  # beside which they are not looked at
            response = case.call(base_url=str(http.base_url))
            assert response.status_code < 500, (case, response.text)

        run()
    return seen


def test_requests_made_from_our_own_document_are_no_fault_of_the_server(http):
    assert {*PATHS, "/tokenize", "/v1/models", "/health"} <= set(documented(http, 4))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_requests_made_from_our_own_document(http):
    documented(http, 400)


def test_the_document_has_every_field_of_a_request(http):
    document = http.get("/openapi.json").json()
    for path, fields in PATHS.items():
        content = document["paths"][path]["post"]["requestBody"]["content"]
        name = content["application/json"]["schema"]["$ref"].rpartition("/")[2]
        assert set(document["components"]["schemas"][name]["properties"]) == set(
            fields.model_fields
        )
        answers = document["paths"][path]["post"]["responses"]
        assert set(answers) == {"200", "4XX", "5XX"}
