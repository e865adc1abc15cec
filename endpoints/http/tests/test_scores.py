"""What is told of tokens, and of a prompt, beside the text: the same in a stream as in a whole."""

from __future__ import annotations

import json

import pytest

FOUR = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
CHAT = {"messages": [{"role": "user", "content": "hé"}], "max_tokens": 7}


def asked(http, path, **body):
    """The whole answer, and the chunks of a stream."""
    whole = http.post(path, json=body)
    assert whole.status_code == 200, whole.text
    stream = http.post(path, json={**body, "stream": True})
    *events, done, rest = stream.text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return whole.json(), [json.loads(event.removeprefix("data: ")) for event in events]


@pytest.mark.parametrize(
    "body",
    [
        # Its end may begin a stop string again and again, and so is sent late.
        {"prompt": "abcabdabe", "stop": ["abdx", "be!"]},
        {"prompt": "ein Käse: 🙂!", "logprobs": 2},
        {"prompt": "é: Käse", "echo": True, "max_tokens": 4},
        {"prompt": [0xC3, 0xA9, 58], "echo": True, "max_tokens": 0},
        {"prompt": ["ab", "cd"], "echo": True, "max_tokens": 2},
    ],
)
def test_offsets_are_places_in_the_text_in_a_stream_too(http, body):
    whole, chunks = asked(http, "/v1/completions", **{"logprobs": 0, **body})
    for choice in whole["choices"]:
        logprobs = choice["logprobs"]
        own = [c for c in chunks if c["choices"][0]["index"] == choice["index"]]
        for name in FOUR:
            parts = [c["choices"][0]["logprobs"][name] for c in own]
            assert [value for part in parts for value in part] == logprobs[name], name
        text = choice["text"]
        for token, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
            assert text.startswith(token, offset) or "\ufffd" in token or token == "<eos>"
        assert logprobs["text_offset"] == sorted(logprobs["text_offset"])
        assert logprobs["text_offset"][-1] >= len(text) - 1


def test_the_first_token_of_an_echoed_prompt_has_no_probability_and_is_told(http):
    whole, _ = asked(http, "/v1/completions", prompt="äh", echo=True, logprobs=1, max_tokens=1)
    found = whole["choices"][0]["logprobs"]
    assert found["tokens"] == ["\ufffd", "\ufffd", "h", "\ufffd"]
    assert found["text_offset"] == [0, 0, 1, 2]
    assert found["token_logprobs"][0] is found["top_logprobs"][0] is None
    assert all(value is not None for value in found["token_logprobs"][1:])


def test_the_token_itself_is_among_the_likeliest_whatever_their_number(http):
    """As OpenAI's API promises."""
    whole, _ = asked(http, "/v1/completions", prompt="ab", logprobs=0)
    found = whole["choices"][0]["logprobs"]
    assert [list(top) for top in found["top_logprobs"]] == [["a"], ["b"], ["<eos>"]]


def test_of_a_prompt_the_first_chunk_tells_what_the_whole_answer_does(http):
    more = {"prompt_logprobs": 1, "return_token_ids": True}
    whole, chunks = asked(http, "/v1/completions", prompt=["ab", "cd"], **more)
    for choice in whole["choices"]:
        own = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == choice["index"]]
        for name in ("prompt_logprobs", "prompt_token_ids"):
            assert own[0][name] == choice[name]
            assert not any(name in one for one in own[1:])
        assert len(choice["prompt_logprobs"]) == 2
        assert choice["prompt_logprobs"][0] is None
        assert [token for one in own for token in one["token_ids"]] == choice["token_ids"]


def test_a_conversation_tells_of_its_prompt_and_its_ids(http):
    more = {"prompt_logprobs": 1, "return_token_ids": True, "n": 2, "temperature": 1}
    whole, chunks = asked(http, "/v1/chat/completions", **CHAT, **more)
    ids = http.post("/tokenize", json={"messages": CHAT["messages"]}).json()["tokens"]
    assert whole["prompt_token_ids"] == chunks[0]["prompt_token_ids"] == ids
    assert whole["prompt_logprobs"] == chunks[0]["prompt_logprobs"]
    assert len(whole["prompt_logprobs"]) == len(ids)
    assert not any("prompt_token_ids" in chunk for chunk in chunks[1:])
    for choice in whole["choices"]:
        assert len(choice["token_ids"]) == CHAT["max_tokens"]
        own = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == choice["index"]]
        assert [token for one in own for token in one.get("token_ids", ())] == choice["token_ids"]


def test_nothing_is_told_that_nobody_asked_for(http):
    for answer in asked(http, "/v1/chat/completions", **CHAT):
        text = json.dumps(answer)
        assert "token_ids" not in text
        assert "prompt_logprobs" not in text


def test_a_prompt_of_ids_is_given_back_as_text(http):
    for body in ({"prompt": [104, 105]}, {"prompt": [[104, 105], [258, 33]]}):
        whole, chunks = asked(http, "/v1/completions", **body, echo=True, max_tokens=1)
        texts = {choice["index"]: choice["text"] for choice in whole["choices"]}
        assert texts[0] == "hih"
        assert texts.get(1, "!") == "!"  # a special token is no text, of the prompt or behind it
        streamed = dict.fromkeys(texts, "")
        for chunk in chunks:
            streamed[chunk["choices"][0]["index"]] += chunk["choices"][0]["text"]
        assert streamed == texts


@pytest.mark.parametrize(
    ("body", "text", "tokens", "offsets"),
    [
        # Special tokens of a prompt, and among an output, are in no text ...
        ({"prompt": [97, 258, 98]}, "abab", ["a", "<turn>", "b"] * 2, [0, 1, 1, 2, 3, 3]),
        # ... unless they are asked for.
        (
            {"prompt": [97, 258], "skip_special_tokens": False},
            "a<turn>a<turn><eos>",
            ["a", "<turn>", "a", "<turn>", "<eos>"],
            [0, 1, 7, 8, 14],
        ),
        # What was cut off is not given back, for the model was not shown it.
        ({"prompt": "abcdef", "truncate_prompt_tokens": 2}, "efef", list("efef"), [0, 1, 2, 3]),
        ({"prompt": "ab", "truncate_prompt_tokens": 9}, "abab", list("abab"), [0, 1, 2, 3]),
        ({"prompt": "äb", "truncate_prompt_tokens": 2}, "\ufffdb", ["\ufffd", "b"], [0, 1]),
        # A character that is none takes the place of one.
        ({"prompt": [0xA4, 0xC3, 98]}, "\ufffd\ufffdb", ["\ufffd", "\ufffd", "b"], [0, 1, 2]),
    ],
)
def test_an_echoed_prompt_and_its_tokens_tell_of_the_same_text(http, body, text, tokens, offsets):
    asks = {**body, "echo": True, "logprobs": 0, "ignore_eos": True}
    asks["max_tokens"] = len(tokens) - min(
        len(body["prompt"]), body.get("truncate_prompt_tokens", 9)
    )
    whole, chunks = asked(http, "/v1/completions", **asks)
    streamed = [chunk["choices"][0] for chunk in chunks]
    for found in (whole["choices"], streamed):
        assert "".join(choice["text"] for choice in found) == text
        for name, value in (("tokens", tokens), ("text_offset", offsets)):
            assert [one for choice in found for one in choice["logprobs"][name]] == value
