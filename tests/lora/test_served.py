"""Adapters over HTTP: loaded by an operator, named by clients in `model`."""

from __future__ import annotations

import httpx
import pytest

from framework.testing.served import start_server

from .conftest import write_adapter

OPTION = "--plugin-option=endpoint.administration"
SECONDS = 120
PROMPT = {"prompt": "Once upon a time", "max_tokens": 4, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def server(model, adapters):
    served = start_server(
        *("--model", str(model), "--set", "executor=in_process", "--set", "tokenizer=demo"),
        *("--set", "load_format=dummy", "--set", "num_pages=256", "--enable-lora"),
        *("--set", "served_model_names=[base]", "--api-key", "client"),
        *("--set", f"lora_modules={{given: {adapters / 'c'}}}"),
        root=(f"{OPTION}.enabled=true", f"{OPTION}.key=0perator"),
    )
    yield served
    served.kill()


def client_of(server, key):
    headers = {"authorization": f"Bearer {key}"}
    return httpx.Client(base_url=server.url, headers=headers, timeout=SECONDS)


@pytest.fixture(scope="module")
def client(server):
    with client_of(server, "client") as made:
        yield made


@pytest.fixture(scope="module")
def operator(server):
    with client_of(server, "0perator") as made:
        yield made


def text(client, model):
    response = client.post("/v1/completions", json={**PROMPT, "model": model})
    assert response.status_code == 200, response.text
    assert response.json()["model"] == model
    return response.json()["choices"][0]["text"]


def names(client):
    return [card["id"] for card in client.get("/v1/models").json()["data"]]


def test_an_adapter_is_a_model_from_loading_to_unloading(client, operator, adapters):
    asked = {"lora_name": "mine", "lora_path": str(adapters / "a")}
    assert operator.post("/v1/load_lora_adapter", json=asked).json() == {"loaded": "mine"}
    assert names(client) == ["base", "given", "mine"]
    card = client.get("/v1/models/mine").json()
    assert (card["parent"], card["root"]) == ("base", "a")
    assert client.get("/v1/models/base").json()["parent"] is None
    said = {name: text(client, name) for name in ("base", "given", "mine")}
    assert len(set(said.values())) == 3
    chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "temperature": 0}
    answers = {
        client.post("/v1/chat/completions", json={**chat, "model": name}).json()["choices"][0][
            "message"
        ]["content"]
        for name in ("base", "mine")
    }
    assert len(answers) == 2
    pinned = operator.post("/v1/pin_lora_adapter", json={"lora_name": "mine"})
    assert pinned.json() == {"pinned": True}
    again = operator.post("/v1/load_lora_adapter", json=asked)
    assert again.status_code == 400
    assert "already" in again.json()["error"]["message"]
    other = {**asked, "lora_path": str(adapters / "b"), "load_inplace": True}
    assert operator.post("/v1/load_lora_adapter", json=other).status_code == 200
    assert text(client, "mine") != said["mine"]
    gone = operator.post("/v1/unload_lora_adapter", json={"lora_name": "mine"})
    assert gone.json() == {"unloaded": "mine"}
    assert names(client) == ["base", "given"]
    assert client.post("/v1/completions", json={**PROMPT, "model": "mine"}).status_code == 404


def test_what_cannot_be_loaded_is_a_400_with_the_reason(client, operator, tmp_path):
    """And the server goes on."""
    wide = write_adapter(tmp_path / "wide", 1, rank=65)
    for asked, reason in (
        ({"lora_name": "x", "lora_path": str(tmp_path / "no")}, "cannot be read"),
        ({"lora_name": "x", "lora_path": str(tmp_path)}, "no adapter that an installed format"),
        ({"lora_name": "x", "lora_path": str(wide)}, "rank 65 is above max_lora_rank"),
        ({"lora_name": "base", "lora_path": str(wide)}, "lora_name"),
        ({"lora_name": "", "lora_path": str(wide)}, "lora_name"),
        ({"lora_name": "x" * 257, "lora_path": str(wide)}, "at most 256 characters"),
        ({"lora_name": "x\x1b[31m", "lora_path": str(wide)}, "can be printed"),
        ({"lora_name": "x", "lora_path": "a\0b"}, "lora_path"),
        ({"lora_name": 5, "lora_path": []}, "lora_name"),
        ({"lora_name": "x"}, "lora_path"),
    ):
        response = operator.post("/v1/load_lora_adapter", json=asked)
        assert response.status_code == 400, response.text
        assert reason in response.json()["error"]["message"]
    unknown = operator.post("/v1/unload_lora_adapter", json={"lora_name": "no"})
    assert unknown.status_code == 400
    assert names(client) == ["base", "given"]
    assert text(client, "given")


def test_no_client_loads_adapters(client, adapters):
    asked = {"lora_name": "mine", "lora_path": str(adapters / "a")}
    assert client.post("/v1/load_lora_adapter", json=asked).status_code == 401
    assert names(client) == ["base", "given"]
