"""POST /v1/messages with what is none of Anthropic's messages."""

from __future__ import annotations

import pytest

HI = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_a_conversation_of_nothing_is_a_400(http, path):
    more = {"max_tokens": 5} if path == "/v1/messages" else {}
    for messages in ([], [{"role": "user", "content": []}]):
        response = http.post(path, json={"messages": messages, **more})
        assert response.status_code == 400
        assert "messages" in response.json()["error"]["message"]
    answer = http.post(path, json={"messages": [{"role": "assistant", "content": []}], **more})
    assert answer.status_code == 200, answer.text


def test_a_tool_whose_input_is_no_object_is_refused_as_this_api_writes_it(http):
    tool = {"name": "f", "input_schema": {"type": "string"}}
    response = http.post("/v1/messages", json={"max_tokens": 5, "messages": HI, "tools": [tool]})
    assert response.status_code == 400
    assert "input_schema" in response.json()["error"]["message"]
