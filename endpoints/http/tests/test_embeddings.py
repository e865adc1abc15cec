"""POST /v1/embeddings, as a client sees it, and what an embedding model refuses."""

from __future__ import annotations

import base64

import httpx
import numpy as np
import openai
import pytest

from framework.contracts.pooling import PoolingParams
from framework.testing.scripts import pooled

SIZE = 8
PATH = "/v1/embeddings"


@pytest.fixture(scope="module")
def embedder(serve):
    """A server of a model that makes vectors and nothing else."""
    return serve(root=("--plugin-option=executor.echo.encoder=true",))


@pytest.fixture(scope="module")
def http(embedder):
    with httpx.Client(base_url=embedder.url, timeout=60) as client:
        yield client


def vector(text, **params):
    return pooled(list(text.encode()), SIZE, PoolingParams(**params)).tolist()


def embed(http, **body):
    return http.post(PATH, json=body)


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        ("hello", ["hello"]),
        (["one", "two", "one"], ["one", "two", "one"]),
        ([104, 105], ["hi"]),
        ([[104, 105], [104]], ["hi", "h"]),
    ],
)
def test_every_form_of_input_has_its_vectors_in_order(http, given, texts):
    found = embed(http, input=given, user="somebody").json()
    assert found["object"] == "list"
    assert [one["index"] for one in found["data"]] == list(range(len(texts)))
    assert [one["object"] for one in found["data"]] == ["embedding"] * len(texts)
    for one, text in zip(found["data"], texts, strict=True):
        assert one["embedding"] == vector(text)
    tokens = sum(map(len, texts))
    assert found["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}


def test_pooling_gives_the_same_vectors_in_its_own_form(http):
    found = http.post("/pooling", json={"input": ["hello", "x"]}).json()
    assert [one["object"] for one in found["data"]] == ["pooling", "pooling"]
    assert [one["data"] for one in found["data"]] == [vector("hello"), vector("x")]
    assert found["usage"]["prompt_tokens"] == 6


def test_base64_is_float32_in_little_endian(http):
    [one] = embed(http, input="hello", encoding_format="base64").json()["data"]
    assert np.frombuffer(base64.b64decode(one["embedding"]), "<f4").tolist() == vector("hello")
    [one] = embed(http, input="hello", encoding_format="float").json()["data"]
    assert one["embedding"] == vector("hello")


def test_size_length_and_cut_are_as_asked(http):
    found = embed(
        http, input="hello", dimensions=3, normalize=True, truncate_prompt_tokens=2
    ).json()
    assert found["data"][0]["embedding"] == vector("he", dimensions=3, normalize=True)
    assert found["usage"]["prompt_tokens"] == 2
    long = embed(http, input="a" * 1000, truncate_prompt_tokens=-1).json()
    assert long["usage"]["prompt_tokens"] == 256


def test_the_official_client_reads_it(embedder):
    with openai.OpenAI(base_url=f"{embedder.url}/v1", api_key="none", timeout=60) as client:
        # It asks for base64 and decodes it.
        found = client.embeddings.create(model="echo://", input=["hello", "x"])
        assert [one.embedding for one in found.data] == [vector("hello"), vector("x")]
        assert (found.model, found.usage.total_tokens) == ("echo://", 6)
        small = client.embeddings.create(model="echo://", input="hello", dimensions=2)
        assert small.data[0].embedding == vector("hello", dimensions=2)
        with pytest.raises(openai.BadRequestError, match="at most 8"):
            client.embeddings.create(model="echo://", input="hello", dimensions=9)
        with pytest.raises(openai.NotFoundError):
            client.embeddings.create(model="none", input="hello")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": [""]}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": [[]]}, "input"),
        ({"input": None}, "input"),
        ({"input": 5}, "input"),
        ({"input": {"prompt": "a"}}, "input"),
        ({"input": ["a", 5]}, "input"),
        ({"input": [-1]}, "input"),
        ({"input": [260]}, "input"),
        ({"input": [10**30]}, "input"),
        ({"input": [[1], [True]]}, "input"),
        ({"input": "a" * 257}, "input"),
        ({"input": ["a"] * 2049}, "input"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "dimensions": 9}, "dimensions"),
        ({"input": "a", "dimensions": "2"}, "dimensions"),
        ({"input": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"input": "a", "truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
        ({"input": "a", "normalize": "yes"}, "normalize"),
        ({"input": "a", "priority": 2**70}, "priority"),
        ({"input": "a", "dimension": 2}, None),
    ],
)
def test_what_is_wrong_is_a_400_that_names_the_field(http, body, param):
    response = http.post(PATH, json=body)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert (error["param"], error["type"]) == (param, "invalid_request_error")
    assert embed(http, input="ok").status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "a"}),
        ("/v1/completions", {"prompt": "a", "stream": True}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
        ("/v1/responses", {"input": "a"}),
        ("/v1/messages", {"max_tokens": 5, "messages": [{"role": "user", "content": "a"}]}),
    ],
)
def test_an_embedding_model_says_that_it_does_not_generate(http, path, body):
    response = http.post(path, json={"model": "echo://", **body})
    assert response.status_code == 400, response.text
    assert "it does not generate text" in response.json()["error"]["message"]


def test_a_generative_model_says_how_it_could_embed(server):
    response = httpx.post(f"{server.url}{PATH}", json={"input": "a"}, timeout=60)
    assert response.status_code == 400
    assert "pooling" in response.json()["error"]["message"]


def test_many_inputs_at_a_time_and_the_counts_of_the_server(embedder, http):
    before = embedder.counted("prompt_tokens_total")
    texts = [f"text {n}" for n in range(300)]
    found = embed(http, input=texts).json()["data"]
    assert [one["embedding"] for one in found] == [vector(text) for text in texts]
    assert embedder.counted("prompt_tokens_total") - before == sum(map(len, texts))
    assert embedder.counted("num_requests_running") == 0
