"""/tokenize, /detokenize, /metrics."""

from __future__ import annotations

import json
import re

import pytest

from framework_http import tokens


def test_text_becomes_ids_and_ids_become_text(http):
    found = http.post("/tokenize", json={"prompt": "hi", "return_token_strs": True}).json()
    assert (found["count"], found["tokens"]) == (2, [104, 105])
    assert len(found["token_strs"]) == 2
    assert http.post("/detokenize", json={"tokens": [104, 105]}).json() == {"prompt": "hi"}


def test_long_texts_are_written_in_pieces(http, monkeypatch):
    monkeypatch.setattr(tokens, "_AT_ONCE", 3)
    for size in (0, 1, 3, 7):
        assert json.loads(tokens._written(list(range(size)))) == list(range(size))
    found = http.post("/tokenize", json={"prompt": "ab" * 50_000}).json()
    assert found["tokens"] == [97, 98] * 50_000


def test_a_conversation_is_tokenized_as_it_is_asked(http):
    messages = [{"role": "user", "content": "hi"}]
    ids = http.post("/tokenize", json={"messages": messages}).json()["tokens"]
    asked = http.post("/v1/chat/completions", json={"messages": messages, "max_tokens": 1}).json()
    assert len(ids) == asked["usage"]["prompt_tokens"]


def test_a_conversation_is_tokenized_with_all_that_the_model_is_shown(http):
    """As far as one can tell from outside: with the same options the ids are the same."""
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "so"}]
    function = {"type": "function", "function": {"name": "f"}}
    for options in ({"continue_final_message": True}, {"add_generation_prompt": False}, {}):
        body = {"messages": messages, **options}
        ids = http.post("/tokenize", json={**body, "add_special_tokens": False}).json()["tokens"]
        more = {"max_tokens": 1, "return_token_ids": True}
        asked = http.post("/v1/chat/completions", json={**body, **more}).json()
        assert ids == asked["prompt_token_ids"]
    assert http.post("/tokenize", json={**body, "tools": [function]}).status_code == 200
    wrong = http.post("/tokenize", json={**body, "tools": [{"type": "odd"}]})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "tools")


def test_a_conversation_may_be_longer_than_the_model_can_take(http):
    """Whoever asks wants to know by how much."""
    body = {"messages": [{"role": "user", "content": "x" * 5000}]}
    assert http.post("/tokenize", json=body).json()["count"] > 5000


def test_null_is_what_was_not_given(http):
    fields = ("tools", "add_special_tokens", "add_generation_prompt", "return_token_strs")
    body = {"prompt": "hi", **dict.fromkeys(fields)}
    assert http.post("/tokenize", json=body).json()["tokens"] == [104, 105]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {}),
        ("/tokenize", {"prompt": "a", "continue_final_message": True}),
        ("/tokenize", {"messages": [{"role": "user"}], "add_special_tokens": True}),
        ("/tokenize", {"prompt": "a", "messages": [{"role": "user", "content": "a"}]}),
        ("/tokenize", {"prompt": 3}),
        ("/tokenize", {"messages": [{"role": "user"}], "extra": 1}),
        ("/detokenize", {"tokens": [-1]}),
        ("/detokenize", {"tokens": [10**30]}),
        ("/detokenize", {"tokens": "abc"}),
    ],
)
def test_what_is_wrong_is_a_400(http, path, body):
    response = http.post(path, json=body)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["message"]


def samples(http):
    text = http.get("/metrics").text
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def total(found, name):
    return sum(value for key, value in found.items() if key.partition("{")[0] == name)


def test_metrics_have_vllms_names_and_count(http):
    before = samples(http)
    http.post("/v1/completions", json={"prompt": "hello"})
    after = samples(http)

    def rise(name):
        return total(after, name) - total(before, name)

    assert rise("framework:prompt_tokens_total") == 5
    assert rise("framework:generation_tokens_total") == 6
    assert rise("framework:request_success_total") == 1
    assert rise("framework:time_to_first_token_seconds_count") == 1
    assert total(after, "framework:num_requests_running") == 0
    assert 'model_name="echo"' in next(iter(after))
    buckets = [
        value
        for key, value in after.items()
        if key.startswith("framework:e2e_request_latency_seconds_bucket")
    ]
    assert buckets == sorted(buckets)
    assert buckets[-1] == total(after, "framework:e2e_request_latency_seconds_count")
    assert all(re.match(r"framework:[a-z0-9_]+\{", key) for key in after)


def test_requests_of_the_server_are_counted_by_route_and_status(http):
    def count(name, *labels):
        found = samples(http)
        return sum(
            v for k, v in found.items() if k.startswith(name) and all(x in k for x in labels)
        )

    name = "framework:http_requests_total"
    ours = ('handler="/v1/completions"', 'method="POST"')
    before = [count(name, *ours, f'status="{code}"') for code in (200, 400)]
    unknown = count(name, 'handler="other"', 'status="404"')
    http.post("/v1/completions", json={"prompt": "a"})
    http.post("/v1/completions", json={"prompt": ""})
    http.get("/made/up/by/a/client")
    assert [count(name, *ours, f'status="{code}"') for code in (200, 400)] == [
        before[0] + 1,
        before[1] + 1,
    ]
    assert count(name, 'handler="other"', 'status="404"') == unknown + 1
    assert count("framework:http_requests_running") == 1, "the one that asks"
    assert count("framework:event_loop_tasks") > 0
