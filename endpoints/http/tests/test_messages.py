"""POST /v1/messages and /v1/messages/count_tokens, also through Anthropic's own client."""

from __future__ import annotations

import json

import anthropic
import httpx
import pytest

from framework.engine.outputs import CompletionOutput
from framework.errors import FrameworkError, InputError
from framework_http import sse
from framework_http.anthropic.answer import Answer
from framework_http.anthropic.conversation import messages_of
from framework_http.openai.reading import Reader
from framework_http.openai.shapes import Usage
from framework_parsers.hermes import Hermes
from framework_parsers.thinking import Qwen3

CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Paris"}}</tool_call>'
TOOL = {"name": "weather", "input_schema": {"type": "object"}}
OPENAI_TOOL = {"type": "function", "function": {"name": "weather"}}
HI = [{"role": "user", "content": "hi"}]


def client_of(server, key="none"):
    return anthropic.Anthropic(base_url=server.url, api_key=key, max_retries=0)


@pytest.fixture(scope="module")
def client(server):
    return client_of(server)


def test_anthropics_client_gets_a_whole_message(client):
    found = client.messages.create(model="echo", max_tokens=99, messages=HI, system="be brief")
    (block,) = found.content
    assert (block.type, block.text) == ("text", "system: be briefuser: hiassistant: ")
    assert (found.stop_reason, found.stop_sequence) == ("end_turn", None)
    usage = found.usage
    assert usage.input_tokens + usage.cache_read_input_tokens + 1 == usage.output_tokens


def test_anthropics_client_reads_the_stream_into_the_same_message(client):
    asked = {"model": "echo", "max_tokens": 99, "messages": [{"role": "user", "content": "äöü"}]}
    whole = client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    assert len(pieces) > 1
    assert "".join(pieces) == final.content[0].text == whole.content[0].text
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_events_come_in_anthropics_order(http, read_events):
    body = {"max_tokens": 99, "messages": HI, "stream": True}
    with http.stream("POST", "/v1/messages", json=body) as response:
        events = read_events(response)
    kinds = [event["type"] for event in events]
    deltas = kinds.count("content_block_delta")
    assert kinds == [
        *("message_start", "ping", "content_block_start"),
        *["content_block_delta"] * deltas,
        *("content_block_stop", "message_delta", "message_stop"),
    ]
    assert deltas > 1
    assert events[0]["message"]["content"] == []
    assert events[0]["message"]["usage"]["output_tokens"] == 0
    assert events[-2]["usage"]["output_tokens"] > 0


def test_a_message_ends_as_the_model_was_ended(client):
    cut = client.messages.create(model="echo", max_tokens=3, messages=HI)
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 3)
    found = client.messages.create(
        model="echo", max_tokens=99, messages=HI, stop_sequences=["never", "hi"]
    )
    assert (found.stop_reason, found.stop_sequence) == ("stop_sequence", "hi")
    assert found.content[0].text == "user: "


def test_an_answer_that_was_begun_is_continued(client):
    begun = [*HI, {"role": "assistant", "content": "Well"}]
    found = client.messages.create(model="echo", max_tokens=99, messages=begun)
    assert found.content[0].text == "user: hiassistant: Well"


def test_calls_of_tools_stream_as_they_are_whole(parsing_server):
    """The echo model says what the user said, behind the marks of its template."""
    client = client_of(parsing_server)
    messages = [{"role": "user", "content": CALL}]
    asked = {"model": "echo://", "max_tokens": 200, "messages": messages, "tools": [TOOL]}
    whole = client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        streamed = stream.get_final_message()
    for found in (whole, streamed):
        call = next(block for block in found.content if block.type == "tool_use")
        assert (call.name, call.input) == ("weather", {"city": "Paris"})
        assert found.stop_reason == "tool_use"
    silent = client.messages.create(**asked, tool_choice={"type": "none"})
    assert [block.type for block in silent.content] == ["text"]


def test_tokens_are_counted_as_they_are_asked(client):
    asked = {"model": "echo", "messages": HI, "system": "be brief"}
    found = client.messages.create(**asked, max_tokens=1).usage
    count = client.messages.count_tokens(**asked).input_tokens
    assert count == found.input_tokens + found.cache_read_input_tokens
    long = [{"role": "user", "content": "x" * 5000}]
    assert client.messages.count_tokens(model="echo", messages=long).input_tokens > 5000


def answer_of(texts, reason="stop"):
    answer = Answer("m", Reader(Qwen3().stream(""), Hermes().stream([OPENAI_TOOL])))
    events = []
    for place, text in enumerate(texts):
        end = reason if place == len(texts) - 1 else None
        output = CompletionOutput(index=0, text=text, token_ids=[], finish_reason=end)
        events += answer.take(output, Usage())
    return answer.body(), [*events, *answer.end()]


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_thinking_text_and_calls_are_blocks_wherever_the_text_was_cut(size):
    text = f"<think>hm</think>\n\nI look.\n{CALL}\n{CALL}"
    body, events = answer_of([text[i : i + size] for i in range(0, len(text), size)])
    thinking, words, *calls = body["content"]
    assert thinking == {"type": "thinking", "thinking": "hm", "signature": ""}
    assert words["text"].strip() == "I look."
    assert [json.loads(sse.JSON.encode(call["input"])) for call in calls] == [{"city": "Paris"}] * 2
    assert calls[0]["id"] != calls[1]["id"]
    for kind in ("start", "stop"):
        found = [e["index"] for e in events if e["type"] == f"content_block_{kind}"]
        assert found == [0, 1, 2, 3]
    assert body["stop_reason"] == "tool_use"


def test_a_call_that_was_cut_keeps_what_there_is_of_it():
    body, _ = answer_of([CALL[:60]], "length")
    assert body["stop_reason"] == "max_tokens"
    assert body["content"][-1]["input"] == {"INVALID_JSON": '{"city": "Paris"'}


@pytest.mark.parametrize(
    "written",
    [
        '{"city": "\\ud800"}',
        '{"\\udc00": 1}',
        '{"n": 1e999}',
        f'{{"n": -{"9" * 40}}}',
        '{"a": [{}]}',
    ],
)
def test_arguments_are_given_as_the_model_wrote_them(written):
    """Also those that JSON can say, and Python cannot write again."""
    body, _ = answer_of([CALL.replace('{"city": "Paris"}', written)])
    text = sse.JSON.encode(body).decode()
    assert f'"input":{written}}}' in text
    assert json.loads(text)["stop_reason"] == "tool_use"


@pytest.mark.parametrize("written", ['{"city": NaN}', '{"city": -Infinity}', '{"city": 01}'])
def test_arguments_that_are_no_json_are_text(written):
    body, _ = answer_of([CALL.replace('{"city": "Paris"}', written)])
    text = sse.JSON.encode(body).decode()
    assert json.loads(text)["content"][-1]["input"] == {"INVALID_JSON": written}


@pytest.mark.parametrize(
    ("path", "body", "tool"),
    [
        ("/v1/messages", {"messages": HI, "max_tokens": 9}, {"name": "a\ud800"}),
        ("/v1/responses", {"input": "hi"}, {"type": "function", "name": "a\ud800"}),
        (
            "/v1/chat/completions",
            {"messages": HI},
            {"type": "function", "function": {"name": "a\ud800"}},
        ),
    ],
)
def test_a_name_of_a_tool_that_no_answer_could_say_is_refused(parsing_server, path, body, tool):
    content = json.dumps({**body, "tools": [{"input_schema": {}, **tool}]})
    headers = {"content-type": "application/json"}
    response = httpx.post(f"{parsing_server.url}{path}", content=content, headers=headers)
    assert response.status_code == 400
    assert "tools" in response.json()["error"]["message"]


def test_an_answer_that_the_operator_ends_is_an_error():
    with pytest.raises(FrameworkError, match="operator"):
        answer_of(["x"], "abort")


def test_results_of_tools_are_messages_of_their_own():
    text = {"type": "text", "text": "look"}
    use = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Paris"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [{**text, "text": "wet"}]}
    thought = {"type": "thinking", "thinking": "hm", "signature": ""}
    given = [
        {"role": "user", "content": [text, {**text, "text": "again"}]},
        {"role": "assistant", "content": [thought, text, use]},
        {"role": "user", "content": [result, {**result, "content": "dry"}, text]},
    ]
    function = {"name": "weather", "arguments": '{"city": "Paris"}'}
    assert messages_of(given, [text]) == [
        {"role": "system", "content": "look"},
        {"role": "user", "content": "look\nagain"},
        {
            "role": "assistant",
            "content": "look",
            "reasoning_content": "hm",
            "tool_calls": [{"id": "t1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "wet"},
        {"role": "tool", "tool_call_id": "t1", "content": "dry"},
        {"role": "user", "content": "look"},
    ]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "system", "content": "x"},
        {"role": "user", "content": []},
        {"content": "x"},
        {"role": "user", "content": 3},
        {"role": "user", "content": [3]},
        {"role": "user", "content": [{"type": "image", "source": {}}]},
        {"role": "user", "content": [{"type": "text"}]},
        {"role": "user", "content": [{"type": "tool_result", "content": "x"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f"}]},
        {"role": "assistant", "content": [{"type": ["text"], "text": "x"}]},
    ],
)
def test_a_block_that_is_not_understood_is_named(message):
    with pytest.raises(InputError, match=r"messages\[1\]"):
        messages_of([HI[0], message], None)


@pytest.mark.timeout(30)
def test_a_body_full_of_blocks_is_read_in_time_by_its_length():
    """A minute where each text is put behind all those before it."""
    many = [{"type": "text", "text": "abcd"}] * 400_000
    result = {"type": "tool_result", "tool_use_id": "1", "content": "x"}
    first, tool, last = messages_of([{"role": "user", "content": [*many, result, *many[:2]]}], None)
    assert (first["role"], len(first["content"])) == ("user", 5 * 400_000 - 1)
    assert (tool["role"], tool["content"]) == ("tool", "x")
    assert last == {"role": "user", "content": "abcd\nabcd"}


REFUSED = {
    "max_tokens": None,
    "messages": [],
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "tools": [{"type": "web_search_20250305", "name": "web_search"}],
    "temperature": "hot",
    "mcp_servers": [],
    "stop_sequences": [""],
    "tool_choice": {"type": "any"},
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_served_is_a_400_in_anthropics_shape(http, name):
    body = {"max_tokens": 5, "messages": HI, name: REFUSED[name]}
    response = http.post("/v1/messages", json=body)
    assert response.status_code == 400, response.text
    found = response.json()
    assert found.keys() == {"type", "error"}
    assert (found["type"], found["error"]["type"]) == ("error", "invalid_request_error")
    word = {"stop_sequences": "stop"}.get(name, name)
    assert word in found["error"]["message"] or "web_search" in found["error"]["message"]


def test_other_errors_have_anthropics_types(client, http):
    with pytest.raises(anthropic.NotFoundError) as error:
        client.messages.create(model="claude", max_tokens=5, messages=HI)
    assert error.value.body["error"]["type"] == "not_found_error"
    long = [{"role": "user", "content": "x" * 5000}]
    response = http.post("/v1/messages", json={"max_tokens": 5, "messages": long, "stream": True})
    assert response.status_code == 400
    assert response.json()["type"] == "error"


def test_the_key_of_anthropics_clients_opens_as_the_other_one_does(guarded_server):
    asked = {"model": "echo://", "max_tokens": 5, "messages": HI}
    assert client_of(guarded_server, "s3cret").messages.create(**asked).content
    with pytest.raises(anthropic.AuthenticationError) as error:
        client_of(guarded_server, "wrong").messages.create(**asked)
    assert error.value.body["type"] == "error"
    wrong = {"authorization": "Bearer wrong", "x-api-key": "s3cret"}
    assert (
        httpx.get(f"{guarded_server.url}/v1/models", headers=wrong, timeout=60).status_code == 401
    )
