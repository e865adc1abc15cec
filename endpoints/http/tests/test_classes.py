"""POST /classify, with a model whose classes are known."""

from __future__ import annotations

import httpx
import numpy as np
import pytest

from framework.contracts.pooling import PoolingParams
from framework.testing.scripts import classified

LABELS = ("calm", "loud", "odd")
TEXTS = ["hello", "world!", "something else"]


@pytest.fixture(scope="module")
def http(serve):
    made = serve(root=(f"--plugin-option=executor.echo.class_labels={','.join(LABELS)}",))
    with httpx.Client(base_url=made.url, timeout=60) as client:
        yield client


def right(text, **asked):
    params = PoolingParams(task="classify", **asked)
    return classified(list(text.encode()), len(LABELS), params).tolist()


@pytest.mark.parametrize("path", ["/classify", "/v1/classify"])
def test_each_text_has_its_classes(http, path):
    found = http.post(path, json={"input": TEXTS, "user": "somebody"}).json()
    assert (found["object"], found["model"]) == ("list", "echo://")
    assert found["id"].startswith("classify-")
    for index, (one, text) in enumerate(zip(found["data"], TEXTS, strict=True)):
        probs = right(text)
        assert one == {
            "index": index,
            "label": LABELS[int(np.argmax(probs))],
            "probs": probs,
            "num_classes": 3,
        }
        assert sum(probs) == pytest.approx(1)
    tokens = sum(map(len, TEXTS))
    assert found["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}


def test_ids_a_cut_and_numbers_as_they_are(http):
    body = {"input": [104, 105, 33], "truncate_prompt_tokens": 2, "use_activation": False}
    found = http.post("/classify", json=body).json()
    assert found["data"][0]["probs"] == right("hi", use_activation=False)
    assert found["usage"]["prompt_tokens"] == 2


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": "a" * 257}, "input"),
        ({"input": ["a"] * 2049}, "input"),
        ({"input": "a", "use_activation": "yes"}, "use_activation"),
        ({"input": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"input": "a", "dimensions": 2}, None),
    ],
)
def test_what_is_wrong_is_a_400_that_names_the_field(http, body, param):
    response = http.post("/classify", json=body)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param


def test_a_model_that_classifies_does_nothing_else_and_the_others_do_not_classify(http, server):
    for url, path, body, words in (
        (http.base_url, "/v1/completions", {"prompt": "a"}, "a request for classes"),
        (http.base_url, "/v1/embeddings", {"input": "a"}, "not loaded to make embeddings"),
        (server.url, "/classify", {"input": "a"}, "does not classify"),
    ):
        response = httpx.post(f"{url}".rstrip("/") + path, json=body, timeout=60)
        assert response.status_code == 400, response.text
        assert words in response.json()["error"]["message"]
