"""POST /score and /rerank, with a model whose vectors are known."""

from __future__ import annotations

import httpx
import numpy as np
import pytest

from framework.contracts.pooling import PoolingParams
from framework.testing.scripts import pooled

TEXTS = ["hello", "world", "something else"]


@pytest.fixture(scope="module")
def http(serve):
    made = serve(root=("--plugin-option=executor.echo.encoder=true",))
    with httpx.Client(base_url=made.url, timeout=60) as client:
        yield client


def cosine(one, two):
    params = PoolingParams(normalize=True)
    left, right = (pooled(list(text.encode()), 8, params) for text in (one, two))
    return float(np.dot(left, right))


@pytest.mark.parametrize("path", ["/score", "/v1/score"])
def test_one_text_is_scored_against_each_of_several(http, path):
    found = http.post(path, json={"text_1": "hello", "text_2": TEXTS}).json()
    assert [one["index"] for one in found["data"]] == [0, 1, 2]
    scores = [one["score"] for one in found["data"]]
    assert scores == pytest.approx([cosine("hello", text) for text in TEXTS], abs=1e-6)
    assert scores[0] == pytest.approx(1, abs=1e-6)
    # A text that comes twice is computed, and counted, once.
    assert found["usage"]["prompt_tokens"] == sum(map(len, TEXTS))


def test_pairs_are_scored_one_by_one(http):
    body = {"text_1": ["hello", "a"], "text_2": ["world", "b"]}
    found = http.post("/score", json=body).json()
    expected = [cosine("hello", "world"), cosine("a", "b")]
    assert [one["score"] for one in found["data"]] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_documents_come_nearest_first(http, path):
    found = http.post(path, json={"query": "hello", "documents": TEXTS[::-1]}).json()
    results = found["results"]
    assert results[0]["document"] == {"text": "hello"}
    assert sorted(one["index"] for one in results) == [0, 1, 2]
    for one in results:
        text = TEXTS[::-1][one["index"]]
        assert one["document"]["text"] == text
        assert one["relevance_score"] == pytest.approx(cosine("hello", text), abs=1e-6)
    scores = [one["relevance_score"] for one in results]
    assert scores == sorted(scores, reverse=True)


def test_the_nearest_alone_and_without_their_texts(http):
    body = {"query": "hello", "documents": TEXTS, "top_n": 1, "return_documents": False}
    [one] = http.post("/rerank", json=body).json()["results"]
    assert (one["index"], set(one)) == (0, {"index", "relevance_score"})


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/score", {"text_1": "a"}, "text_2"),
        ("/score", {"text_1": "a", "text_2": []}, "text_2"),
        ("/score", {"text_1": "", "text_2": "a"}, "text_1"),
        ("/score", {"text_1": ["a", "b"], "text_2": ["a"]}, "text_2"),
        ("/score", {"text_1": "a", "text_2": ["b"] * 2049}, "text_2"),
        ("/score", {"text_1": 5, "text_2": "a"}, "text_1"),
        ("/score", {"text_1": "a" * 257, "text_2": "a"}, "text_1"),
        ("/score", {"text_1": "a", "text_2": ["a", "a" * 257]}, "text_2"),
        ("/score", {"text_1": "a" * 257, "text_2": "a" * 257}, "text_1"),
        ("/rerank", {"query": "a" * 10**6, "documents": ["a"]}, "query"),
        ("/rerank", {"query": "a", "documents": ["b", "a" * 257]}, "documents"),
        ("/rerank", {"query": "a", "documents": []}, "documents"),
        ("/rerank", {"query": "", "documents": ["a"]}, "query"),
        ("/rerank", {"query": "a", "documents": ["a", ""]}, "documents"),
        ("/rerank", {"query": "a", "documents": ["a"], "top_n": -1}, "top_n"),
    ],
)
def test_what_is_wrong_is_a_400_that_names_the_field(http, path, body, param):
    response = http.post(path, json=body)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param


def test_the_text_that_is_too_long_is_named_by_its_place(http):
    body = {"query": "a", "documents": ["a", "b", "a" * 257]}
    message = http.post("/rerank", json=body).json()["error"]["message"]
    assert message.startswith("documents[2]: the prompt is too long\n")


def test_a_generative_model_says_that_it_scores_nothing(server):
    response = httpx.post(f"{server.url}/score", json={"text_1": "a", "text_2": "b"}, timeout=60)
    assert response.status_code == 400
    assert "pooling" in response.json()["error"]["message"]
