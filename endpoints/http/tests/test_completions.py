"""POST /v1/completions, as a client sees it."""

from __future__ import annotations

import base64
import io
import json

import numpy as np
import pytest

from framework.testing.occupant import WIDTH


def events(http, path, body):
    """The data of each server-sent event of a streamed answer."""
    with http.stream("POST", path, json={**body, "stream": True}) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in response.iter_lines() if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def complete(http, **body):
    return http.post("/v1/completions", json={"model": "echo", **body})


def test_a_text_is_continued_and_counted(http):
    found = complete(http, prompt="hello").json()
    assert found["object"] == "text_completion"
    assert found["model"] == "echo"
    (choice,) = found["choices"]
    assert (choice["text"], choice["finish_reason"], choice["index"]) == ("hello", "stop", 0)
    assert choice["logprobs"] is None
    # five bytes and the end of sequence
    usage = found["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (5, 6, 11)


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        (["one", "two"], ["one", "two"]),
        ([104, 105], ["hi"]),
        ([[104, 105], [33]], ["hi", "!"]),
    ],
)
def test_every_form_of_a_prompt(http, prompt, texts):
    choices = complete(http, prompt=prompt).json()["choices"]
    assert [choice["text"] for choice in choices] == texts
    assert [choice["index"] for choice in choices] == list(range(len(texts)))


def test_the_stream_is_the_whole_answer_in_parts(http):
    prompt = "streamed, part by part: äöü"
    whole = complete(http, prompt=prompt).json()
    chunks = events(http, "/v1/completions", {"model": "echo", "prompt": prompt})
    assert "".join(c["choices"][0]["text"] for c in chunks) == whole["choices"][0]["text"] == prompt
    assert all("finish_reason" in c["choices"][0] for c in chunks)
    assert [c["choices"][0]["finish_reason"] for c in chunks][-1] == "stop"
    assert all(c["choices"][0]["finish_reason"] is None for c in chunks[:-1])
    assert len({c["id"] for c in chunks}) == 1
    assert "usage" not in chunks[-1]


def test_usage_in_a_stream_comes_when_it_is_asked_for(http):
    body = {"model": "echo", "prompt": "abc"}
    asks = {**body, "stream_options": {"include_usage": True}}
    *others, last = events(http, "/v1/completions", asks)
    assert {repr(chunk["usage"]) for chunk in others} == {"None"}  # as OpenAI's API says
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 4
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = events(http, "/v1/completions", {**body, "stream_options": options})
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[-1] == 4
    plain = events(http, "/v1/completions", {**body, "stream_options": {}})
    assert all("usage" not in chunk for chunk in plain)


def test_echo_gives_the_prompt_back_too(http):
    choice = complete(http, prompt="ab", echo=True, max_tokens=1).json()["choices"][0]
    assert choice["text"] == "aba"
    assert choice["finish_reason"] == "length"


def test_n_and_stop(http):
    found = complete(http, prompt="one two", n=2, stop=[" "], temperature=1).json()
    assert [c["text"] for c in found["choices"]] == ["one", "one"]
    assert [c["stop_reason"] for c in found["choices"]] == [" ", " "]


def test_several_prompts_in_one_stream_keep_their_indices(http):
    chunks = events(http, "/v1/completions", {"model": "echo", "prompt": ["aa", "bbb"], "n": 2})
    texts = {}
    for chunk in chunks:
        choice = chunk["choices"][0]
        texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    assert texts == {0: "aa", 1: "aa", 2: "bbb", 3: "bbb"}


def test_plain_text_is_a_format_and_special_tokens_may_stay_away(http):
    more = {"response_format": {"type": "text"}, "add_special_tokens": False}
    assert complete(http, prompt="hey", **more).json()["choices"][0]["text"] == "hey"
    assert complete(http, prompt=[104, 105], **more).json()["choices"][0]["text"] == "hi"


def npy(*shape):
    file = io.BytesIO()
    np.save(file, np.arange(np.prod(shape), dtype=np.float16).reshape(shape))
    return base64.b64encode(file.getvalue()).decode()


EMBEDS, NARROW = npy(3, WIDTH), npy(3, WIDTH - 1)


@pytest.mark.parametrize("more", [{}, {"prompt": None}, {"prompt": ""}])
def test_embeddings_stand_in_the_place_of_a_prompt(http, more):
    found = complete(http, prompt_embeds=EMBEDS, max_tokens=2, **more).json()
    assert len(found["choices"]) == 1
    assert found["usage"]["prompt_tokens"] == 3
    found = complete(http, prompt_embeds=[EMBEDS, npy(5, WIDTH)], n=2, max_tokens=2, **more).json()
    assert [choice["index"] for choice in found["choices"]] == [0, 1, 2, 3]
    assert found["usage"]["prompt_tokens"] == 8
    chunks = events(http, "/v1/completions", {"prompt_embeds": EMBEDS, "max_tokens": 2, **more})
    assert chunks


def test_the_description_asks_for_no_prompt_beside_embeddings(http):
    fields = http.get("/openapi.json").json()["components"]["schemas"]["CompletionFields"]
    assert "prompt_embeds" in fields["properties"]
    assert "prompt" not in fields.get("required", [])


BAD = {
    "no body": (None, "body"),
    "a list": ([1, 2], "body"),
    "no prompt": ({"model": "echo"}, "prompt"),
    "an empty prompt": ({"prompt": ""}, "prompt"),
    "no prompts": ({"prompt": []}, "prompt"),
    "an empty one among them": ({"prompt": ["a", ""]}, "prompt"),
    "a huge id": ({"prompt": [10**30]}, "prompt"),
    "a negative id": ({"prompt": [-1]}, "prompt"),
    "mixed": ({"prompt": ["a", 1]}, "prompt"),
    "NaN": ('{"prompt": "a", "temperature": NaN}', "temperature"),
    "text for a number": ({"prompt": "a", "temperature": "hot"}, "temperature"),
    "top_p 0": ({"prompt": "a", "top_p": 0}, "top_p"),
    "n 0": ({"prompt": "a", "n": 0}, "n"),
    "too long": ({"prompt": "a" * 5000}, "prompt"),
    "negative max_tokens": ({"prompt": "a", "max_tokens": -1}, "max_tokens"),
    "a bias of no id": ({"prompt": "a", "logit_bias": {"x": 1}}, "logit_bias"),
    "a typo": ({"prompt": "a", "temprature": 1}, "temperature"),
    "stream_options alone": ({"prompt": "a", "stream_options": {}}, "stream"),
    "suffix": ({"prompt": "a", "suffix": "b"}, "suffix"),
    "embeds beside a prompt": ({"prompt": "a", "prompt_embeds": EMBEDS}, "prompt"),
    "embeds of another size": ({"prompt_embeds": NARROW}, "prompt_embeds"),
    "embeds that are none": ({"prompt": None, "prompt_embeds": "AAAA"}, "prompt_embeds"),
    "one that is none among them": ({"prompt_embeds": [EMBEDS, "AA"]}, "prompt_embeds"),
    "no embeds": ({"prompt_embeds": []}, "prompt_embeds"),
    "numbers for embeds": ({"prompt_embeds": [[0.5, 1.0]]}, "prompt_embeds"),
    "embeds to be echoed": ({"prompt_embeds": EMBEDS, "echo": True}, "echo"),
    "ids of embeds": ({"prompt_embeds": EMBEDS, "return_token_ids": True}, "return_token_ids"),
    "scores of embeds": ({"prompt_embeds": EMBEDS, "prompt_logprobs": 1}, "prompt_logprobs"),
    "a format": ({"prompt": "a", "response_format": {"type": "json_object"}}, "structured_outputs"),
    "no format": ({"prompt": "a", "response_format": {"type": "xml"}}, "response_format"),
    "no schema": ({"prompt": "a", "response_format": {"type": "json_schema"}}, "response_format"),
    "special": ({"prompt": "a", "add_special_tokens": "perhaps"}, "add_special_tokens"),
    "no JSON": ("{", "body"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_a_400_that_says_what(http, case):
    body, word = BAD[case]
    text = body if isinstance(body, str) else json.dumps(body)
    headers = {"content-type": "application/json"}
    response = http.post("/v1/completions", content=text, headers=headers)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert word in (error["param"] or "") + error["message"].lower()
    assert complete(http, prompt="next").json()["choices"][0]["text"] == "next"


def test_an_unknown_model_is_a_404(http):
    response = complete(http, prompt="a", model="gpt")
    assert response.status_code == 404
    assert "echo" in response.json()["error"]["message"]


def test_an_error_before_the_first_chunk_is_a_status_and_no_stream(http):
    response = complete(http, prompt="", stream=True)
    assert response.status_code == 400
    assert response.headers["content-type"] == "application/json"


def test_a_stream_may_come_in_larger_pieces(http):
    body = {"prompt": "0123456789", "stream_interval": 4}
    chunks = events(http, "/v1/completions", body)
    texts = [c["choices"][0]["text"] for c in chunks]
    assert texts == ["0", "1234", "5678", "9"]
    refused = complete(http, prompt="a", stream=True, stream_interval=0)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "stream_interval")
