"""POST /v1/chat/completions, also through OpenAI's own client."""

from __future__ import annotations

import json

import httpx
import openai
import pytest

MESSAGES = [{"role": "user", "content": "hi"}]


def chat(http, **body):
    return http.post("/v1/chat/completions", json={"messages": MESSAGES, **body})


@pytest.fixture(scope="session")
def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def test_an_answer_has_a_message_and_counts(http):
    found = chat(http, max_completion_tokens=8).json()
    (choice,) = found["choices"]
    assert found["object"] == "chat.completion"
    assert choice["message"] == {"role": "assistant", "content": choice["message"]["content"]}
    assert choice["finish_reason"] in ("stop", "length")
    assert found["usage"]["completion_tokens"] <= 8


def test_a_reasoning_effort_is_one_that_openai_knows(http):
    for effort in ("none", "minimal", "low", "medium", "high", "xhigh", "max", None):
        assert chat(http, reasoning_effort=effort, max_tokens=1).status_code == 200
    for effort in ("", "much", "HIGH", 3, ["low"]):
        refused = chat(http, reasoning_effort=effort)
        error = refused.json()["error"]
        assert (refused.status_code, error["param"]) == (400, "reasoning_effort")
    assert "'none', 'minimal', 'low'" in chat(http, reasoning_effort="much").text


def test_a_stream_names_the_role_first_and_always_has_a_finish_reason(http):
    """Field bug 25."""
    body = {"messages": MESSAGES, "stream": True, "n": 2, "temperature": 1}
    with http.stream("POST", "/v1/chat/completions", json=body) as response:
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    assert lines[-1] == "[DONE]"
    choices = [json.loads(line)["choices"][0] for line in lines[:-1]]
    for index in (0, 1):
        mine = [choice for choice in choices if choice["index"] == index]
        assert mine[0]["delta"] == {"role": "assistant", "content": ""}
        assert all("role" not in choice["delta"] for choice in mine[1:])
        assert [choice["finish_reason"] for choice in mine].count(None) == len(mine) - 1
        assert mine[-1]["finish_reason"] == "stop"
    whole = chat(http).json()["choices"][0]["message"]["content"]
    mine = [choice for choice in choices if choice["index"] == 0]
    assert "".join(choice["delta"].get("content", "") for choice in mine) == whole


def test_openais_client_completes_chats_and_streams(client):
    answer = client.chat.completions.create(
        model="echo", messages=MESSAGES, logprobs=True, top_logprobs=2, max_tokens=5
    )
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens
    assert (
        b"".join(bytes(entry.bytes) for entry in content)
        .decode()
        .endswith(answer.choices[0].message.content)
    )
    stream = client.chat.completions.create(
        model="echo",
        messages=MESSAGES,
        stream=True,
        max_tokens=5,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == answer.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == answer.usage.completion_tokens
    assert client.completions.create(model="echo", prompt="abc").choices[0].text == "abc"
    assert [model.id for model in client.models.list()] == ["echo", "other"]
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="gpt", messages=MESSAGES)


BAD = {
    "no messages": {"messages": []},
    "null": {"messages": None},
    "no role": {"messages": [{"content": "x"}]},
    "a number": {"messages": [{"role": "user", "content": 3}]},
    "top_logprobs alone": {"messages": MESSAGES, "top_logprobs": 2},
    "both ends": {
        "messages": MESSAGES,
        "add_generation_prompt": True,
        "continue_final_message": True,
    },
    "a text that cannot fit": {"messages": [{"role": "user", "content": "x" * 5000}]},
    "a schema": {"messages": MESSAGES, "response_format": {"type": "json_object"}},
    "a forced tool": {
        "messages": MESSAGES,
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "tool_choice": "required",
    },
}


def test_a_conversation_can_be_cut_to_its_end(http):
    long = [{"role": "user", "content": "x" * 5000}]
    found = chat(http, messages=long, truncate_prompt_tokens=8, max_tokens=2).json()
    assert found["usage"]["prompt_tokens"] == 8


def test_a_template_of_the_clients_is_run_only_where_the_operator_allows_it(http):
    """A golden stream shows it where it is allowed."""
    found = chat(http, chat_template="{% for i in range(99999) %}x{% endfor %}")
    assert found.status_code == 400
    assert found.json()["error"]["param"] == "chat_template"
    assert "client_templates=true" in found.json()["error"]["message"]


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_a_400(http, case):
    response = http.post("/v1/chat/completions", json=BAD[case])
    assert response.status_code == 400, response.text
    assert response.json()["error"]["message"]
    assert chat(http).status_code == 200


def named(name, **more):
    return {"type": "function", "function": {"name": name, **more}}


BAD_TOOLS = {
    "nothing": {"tools": [{}]},
    "another type": {"tools": [{"type": "custom", "custom": {"name": "f"}}]},
    "no function": {"tools": [named("f"), {"type": "function", "name": "f"}]},
    "no name": {"tools": [{"type": "function", "function": {}}]},
    "an empty name": {"tools": [named("")]},
    "a number": {"tools": [named(5)]},
    "parameters as text": {"tools": [named("f", parameters="{}")]},
    "parameters as a list": {"tools": [named("f", parameters=[])], "tool_choice": "none"},
    "a choice that is none": {"tools": [named("f")], "tool_choice": "maybe"},
    "a choice without tools": {"tool_choice": "required"},
}


@pytest.mark.parametrize("case", BAD_TOOLS)
def test_a_tool_that_is_none_is_a_400_that_names_the_field(parsing_server, case):
    body = {"messages": MESSAGES, "max_tokens": 1, **BAD_TOOLS[case]}
    response = httpx.post(f"{parsing_server.url}/v1/chat/completions", json=body, timeout=60)
    assert response.status_code == 400, response.text
    assert "tool" in response.json()["error"]["message"]


def test_a_tool_needs_a_name_and_no_more(parsing_server):
    body = {"messages": MESSAGES, "max_tokens": 1, "tools": [named("f"), named("f", parameters={})]}
    response = httpx.post(f"{parsing_server.url}/v1/chat/completions", json=body, timeout=60)
    assert response.status_code == 200, response.text
