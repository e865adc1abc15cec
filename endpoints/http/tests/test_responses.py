"""POST /v1/responses, also through OpenAI's own client."""

from __future__ import annotations

import asyncio
import json

import openai
import pytest

from framework.contracts.sampling import SamplingParams
from framework.engine.outputs import CompletionOutput
from framework.errors import FrameworkError, InputError
from framework_http.openai.reading import Reader
from framework_http.openai.response_fields import LOGPROBS, ResponseFields
from framework_http.openai.response_input import messages_of
from framework_http.openai.response_items import Response
from framework_http.openai.responses import _told
from framework_http.openai.shapes import Usage
from framework_parsers.hermes import Hermes
from framework_parsers.thinking import Qwen3

FUNCTION = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Paris"}}</tool_call>'


def client_of(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def client(server):
    return client_of(server)


def test_openais_client_gets_a_whole_response(client):
    found = client.responses.create(model="echo", input="hi", instructions="be brief")
    assert found.status == "completed"
    assert found.output_text == "system: be briefuser: hiassistant: "
    assert found.usage.output_tokens == found.usage.input_tokens + 1
    assert found.usage.output_tokens_details.reasoning_tokens == 0
    assert (found.error, found.incomplete_details, found.store) == (None, None, False)


def test_openais_client_reads_the_stream_into_the_same_response(client):
    whole = client.responses.create(model="echo", input="äöü")
    with client.responses.stream(model="echo", input="äöü") as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert final.output_text == whole.output_text
    assert final.usage.total_tokens == whole.usage.total_tokens
    deltas = [e.delta for e in events if e.type == "response.output_text.delta"]
    assert len(deltas) > 1
    assert "".join(deltas) == whole.output_text
    assert [e.sequence_number for e in events] == list(range(len(events)))


ORDER = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
]


def test_events_come_in_openais_order(http, read_events):
    body = {"input": "hi", "stream": True}
    with http.stream("POST", "/v1/responses", json=body) as response:
        events = read_events(response)
    kinds = [event["type"] for event in events]
    assert list(dict.fromkeys(kinds)) == ORDER
    assert {kind for kind in ORDER if kinds.count(kind) > 1} == {"response.output_text.delta"}
    assert events[0]["response"]["status"] == "in_progress"
    assert events[0]["response"]["output"] == []
    (item,) = events[-1]["response"]["output"]
    assert item == events[-2]["item"]
    assert {e["item_id"] for e in events if "item_id" in e} == {item["id"]}


def test_an_item_that_was_cut_ends_as_it_is_in_the_response(http, read_events):
    body = {"input": "hello", "max_output_tokens": 3, "stream": True}
    with http.stream("POST", "/v1/responses", json=body) as response:
        events = read_events(response)
    (item,) = events[-1]["response"]["output"]
    assert (events[-2]["item"], item["status"]) == (item, "incomplete")


def test_a_response_that_was_cut_says_so(client):
    found = client.responses.create(model="echo", input="hello", max_output_tokens=3)
    assert (found.status, found.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert found.output[0].status == "incomplete"
    assert found.usage.output_tokens == 3


def test_log_probabilities_are_those_of_the_text(client):
    found = client.responses.create(model="echo", input="hi", include=[LOGPROBS], top_logprobs=1)
    (part,) = found.output[0].content
    told = "".join(entry.token for entry in part.logprobs)
    assert told.replace("<turn>", "") == part.text  # a special token is in no text
    assert all(len(entry.top_logprobs) == 1 for entry in part.logprobs)


def test_calls_of_functions_stream_as_they_are_whole(parsing_server):
    """The echo model says what the user said, behind the marks of its template."""
    client = client_of(parsing_server)
    asked = {"model": "echo://", "input": CALL, "tools": [FUNCTION]}
    call = next(i for i in client.responses.create(**asked).output if i.type == "function_call")
    assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Paris"})
    with client.responses.stream(**asked) as stream:
        events = list(stream)
    done = next(e for e in events if e.type == "response.function_call_arguments.done")
    deltas = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
    assert "".join(deltas) == done.arguments == call.arguments
    silent = client.responses.create(**asked, tool_choice="none")
    assert [item.type for item in silent.output] == ["message"]


def response_of(texts):
    fields = ResponseFields(input="x")
    reader = Reader(
        Qwen3().stream(""), Hermes().stream([{"type": "function", "function": FUNCTION}])
    )
    response = Response(fields, SamplingParams(), "m", reader)
    events = [*response.begin()]
    for place, text in enumerate(texts):
        reason = "stop" if place == len(texts) - 1 else None
        output = CompletionOutput(index=0, text=text, token_ids=[], finish_reason=reason)
        events += response.take(output, Usage())
    return response, [*events, *response.end(7)]


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_reasoning_text_and_calls_are_items_wherever_the_text_was_cut(size):
    text = f"<think>hm</think>\n\nI look.\n{CALL}\n{CALL}"
    response, events = response_of([text[i : i + size] for i in range(0, len(text), size)])
    output = response.body()["output"]
    assert [item["type"] for item in output] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
    ]
    assert output[0]["content"] == [{"type": "reasoning_text", "text": "hm"}]
    assert output[1]["content"][0]["text"].strip() == "I look."
    assert json.loads(output[2]["arguments"]) == {"city": "Paris"}
    assert output[2]["call_id"] != output[3]["call_id"]
    assert [e["output_index"] for e in events if e["type"].endswith("item.added")] == [0, 1, 2, 3]
    assert response.body()["usage"]["output_tokens_details"] == {"reasoning_tokens": 7}


def test_an_answer_without_text_is_an_empty_message():
    (item,) = response_of([""])[0].body()["output"]
    assert (item["type"], item["content"][0]["text"]) == ("message", "")


def test_an_error_behind_the_first_event_is_a_failed_response():
    async def scene(events):
        response = response_of(["a"])[0]
        return [event async for event in _told(events, response)]

    async def broken(first):
        if first:
            yield {"type": "response.created"}
        raise FrameworkError("broke")

    last = asyncio.run(scene(broken(True)))[-1]
    assert last["type"] == "response.failed"
    assert last["response"]["status"] == "failed"
    assert last["response"]["error"]["message"] == "broke"
    with pytest.raises(FrameworkError):
        asyncio.run(scene(broken(False)))


def test_items_of_one_turn_are_one_message():
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "rain?"}]},
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}], "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A"}]},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "wet"},
        {"role": "developer", "content": "be kind"},
    ]
    functions = [
        {"id": key, "type": "function", "function": {"name": "weather", "arguments": "{}"}}
        for key in ("c1", "c2")
    ]
    assert messages_of(items, "short") == [
        {"role": "system", "content": "short"},
        {"role": "user", "content": "rain?"},
        {"role": "assistant", "content": "A", "reasoning_content": "hm", "tool_calls": functions},
        {"role": "tool", "tool_call_id": "c1", "content": "wet"},
        {"role": "developer", "content": "be kind"},
    ]


@pytest.mark.parametrize(
    "item",
    [
        {"type": "item_reference", "id": "x"},
        {"role": "robot", "content": "x"},
        {"role": "user", "content": [{"type": "input_image", "image_url": "x"}]},
        {"role": "user", "content": 3},
        {"role": "user"},
        {"type": "function_call", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": {}},
        {"type": "function_call_output", "call_id": "c"},
        {"type": ["message"]},
    ],
)
def test_an_item_that_is_not_understood_is_named(item):
    with pytest.raises(InputError, match=r"input\[1\]"):
        messages_of([{"role": "user", "content": "x"}, item], None)


REFUSED = {
    "previous_response_id": "resp_1",
    "conversation": "conv_1",
    "prompt": {"id": "p"},
    "store": True,
    "background": True,
    "truncation": "auto",
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}},
    "include": ["web_search_call.results"],
    "reasoning": {"summary": "detailed"},
    "reasoning.effort": {"effort": "much"},
    "tools": [{"type": "web_search"}],
    "tool_choice": "required",
    "top_logprobs": 2,
    "input": [],
    "max_output_tokens": 0.5,
    "temprature": 1,
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_served_is_a_400_that_names_it(http, name):
    body = {"input": "x", name.partition(".")[0]: REFUSED[name]}
    response = http.post("/v1/responses", json=body)
    assert response.status_code == 400, response.text
    word = {"tools": "web_search", "temprature": "temperature", "text": "structured_outputs"}.get(
        name, name
    )
    assert word in response.json()["error"]["message"] + str(response.json()["error"]["param"])


def test_a_tool_is_forced_only_where_grammars_are_served(parsing_server):
    client = client_of(parsing_server)
    with pytest.raises(openai.BadRequestError, match="structured_outputs"):
        client.responses.create(
            model="echo://", input="x", tools=[FUNCTION], tool_choice="required"
        )


def test_nothing_can_be_looked_up(client):
    for look_up in (client.responses.retrieve, client.responses.delete, client.responses.cancel):
        with pytest.raises(openai.NotFoundError, match="not kept"):
            look_up("resp_1")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("user", "\ud800"),
        ("metadata", {"a": "\ud800"}),
        ("metadata", {"\udfff": "a"}),
        ("tool_choice", {"type": "auto", "more": ["\ud800"]}),
    ],
)
@pytest.mark.parametrize("streams", [False, True])
def test_what_cannot_be_given_back_is_a_400_that_names_the_field(http, name, value, streams):
    body = json.dumps({"input": "a", "stream": streams, name: value})
    given = {"content-type": "application/json"}
    response = http.post("/v1/responses", content=body, headers=given)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == name


def test_the_form_that_was_asked_for_stands_in_the_response():
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
    for given, told in ((None, {"type": "text"}), ({}, {"type": "text"}), ({"format": form}, form)):
        fields = ResponseFields(input="x", text=given)
        body = Response(fields, SamplingParams(), "m", Reader(None, None)).body()
        assert body["text"]["format"] == told
