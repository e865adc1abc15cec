"""Tools and reasoning in chat completions."""

from __future__ import annotations

import json

import httpx
import pytest

from framework.engine.outputs import CompletionOutput
from framework_http.openai.chat import ChatFields, _wanted
from framework_http.openai.reading import Reader, folded
from framework_parsers.hermes import Hermes
from framework_parsers.thinking import Qwen3

TOOLS = [{"type": "function", "function": {"name": "weather"}}]
CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Paris"}}</tool_call>'


def outputs(pieces):
    last = len(pieces) - 1
    for place, text in enumerate(pieces):
        reason = "stop" if place == last else None
        yield CompletionOutput(index=0, text=text, token_ids=[], finish_reason=reason)


def read(pieces, *, thinks=True):
    reader = Reader(Qwen3().stream("") if thinks else None, Hermes().stream(TOOLS))
    deltas, end = [], {}
    for output in outputs(pieces):
        deltas += reader.read(output)
        end = reader.ending(output)
    return deltas, end


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_stream_folds_into_the_same_message_wherever_it_is_cut(size):
    text = f"<think>hm</think>I look.{CALL}"
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    deltas, end = read(pieces)
    message = folded(deltas)
    assert message["reasoning_content"] == "hm"
    assert message["content"] == "I look."
    (call,) = message["tool_calls"]
    assert call["type"] == "function"
    assert call["id"].startswith("call_")
    assert call["function"]["name"] == "weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Paris"}
    assert end["finish_reason"] == "tool_calls"


def test_an_answer_without_calls_ends_as_the_model_ended_it():
    deltas, end = read(["plain"], thinks=False)
    assert folded(deltas) == {"role": "assistant", "content": "plain"}
    assert end["finish_reason"] == "stop"


def test_an_answer_of_a_call_alone_has_no_content():
    assert folded(read([CALL])[0])["content"] is None


@pytest.fixture(scope="module")
def parsing(serve):
    """A server that looks for tools and reasoning."""
    server = serve("--tool-parser", "hermes", "--reasoning-parser", "qwen3")
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


def test_calls_and_reasoning_over_http(parsing):
    """The echo model says what the user said, behind the marks of its template."""
    body = {"messages": [{"role": "user", "content": CALL}], "tools": TOOLS}
    choice = parsing.post("/v1/chat/completions", json=body).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls", choice
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "weather"
    with parsing.stream("POST", "/v1/chat/completions", json={**body, "stream": True}) as response:
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    choices = [json.loads(line)["choices"][0] for line in lines[:-1]]
    assert choices[-1]["finish_reason"] == "tool_calls"
    message = folded(choice["delta"] for choice in choices)
    assert message["tool_calls"][0]["function"]["name"] == "weather"
    plain = parsing.post("/v1/chat/completions", json={**body, "tool_choice": "none"}).json()
    assert "tool_calls" not in plain["choices"][0]["message"]


def test_tools_without_a_parser_are_a_400_that_says_how_to_get_one(http):
    body = {"messages": [{"role": "user", "content": "x"}], "tools": TOOLS}
    response = http.post("/v1/chat/completions", json=body)
    assert response.status_code == 400
    assert "--tool-parser" in response.json()["error"]["message"]


def test_one_call_at_a_time_leaves_out_the_others():
    texts = [f"{CALL}{CALL}"]
    many = Reader(None, Hermes().stream(TOOLS))
    one = Reader(None, Hermes().stream(TOOLS), one_call=True)
    for reader, number in ((many, 2), (one, 1)):
        (output,) = outputs(texts)
        assert len(folded(reader.read(output))["tool_calls"]) == number


@pytest.mark.parametrize("include", [True, False, None])
def test_reasoning_that_is_not_wanted_is_left_out(include):
    fields = ChatFields(messages=[{"role": "user", "content": "x"}], include_reasoning=include)
    reader = Reader(Qwen3().stream(""), None)
    (output,) = outputs(["<think>hm</think>I look."])
    message = folded(_wanted(reader.read(output), fields))
    assert message["content"] == "I look."
    assert ("reasoning_content" in message) == (include is not False)
