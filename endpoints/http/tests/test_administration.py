"""Administration: off unless it is switched on, and behind a key of its own."""

from __future__ import annotations

import threading
import time

import httpx
import pytest

from framework.contracts.front_end import Mounted
from framework.errors import ConfigError
from framework_http.administration import Administration, AdministrationOptions
from framework_http.application import build_app
from framework_http.options import HostOptions

OPTION = "--plugin-option=endpoint.administration"
POST = (
    *("/sleep", "/wake_up", "/pause", "/resume", "/reset_prefix_cache"),
    *("/start_profile", "/stop_profile"),
    *("/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/pin_lora_adapter"),
)
GET = ("/is_sleeping", "/server_info")
SECONDS = 60


def bearer(key):
    return {"authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def administered(serve):
    root = (f"{OPTION}.enabled=true", f"{OPTION}.key=0perator")
    return serve("--api-key", "client", root=root)


@pytest.fixture(scope="module")
def operator(administered):
    headers = bearer("0perator")
    with httpx.Client(base_url=administered.url, headers=headers, timeout=SECONDS) as client:
        yield client


@pytest.fixture(scope="module")
def client(administered):
    headers = bearer("client")
    with httpx.Client(base_url=administered.url, headers=headers, timeout=SECONDS) as client:
        yield client


def test_without_the_switch_there_are_no_such_routes(http):
    found = {path: http.post(path).status_code for path in POST}
    assert set(found.values()) == {404}
    assert {http.get(path).status_code for path in GET} == {404}
    assert http.get("/administration").json() == {"enabled": False}


def test_no_key_of_a_client_opens_them_nor_theirs_the_others(administered, client, operator):
    for headers in (bearer("client"), bearer("wrong"), {"authorization": "0perator"}, {}):
        for path in POST:
            found = httpx.post(administered.url + path, headers=headers, timeout=SECONDS)
            assert found.status_code == 401, path
            assert "0perator" not in found.text
        for path in GET:
            found = httpx.get(administered.url + path, headers=headers, timeout=SECONDS)
            assert found.status_code == 401, path
    assert operator.get("/v1/models").status_code == 401
    assert operator.get("/administration").json() == {"enabled": True}
    assert client.get("/v1/models").status_code == 200
    assert operator.get("/is_sleeping").json() == {"is_sleeping": False}


@pytest.mark.parametrize("given", ["0perator", "tenant:0perator"])
def test_its_key_is_no_clients(given):
    """Else any client with that key is an operator."""
    options = HostOptions(api_keys=["another", given])

    def build(**settings):
        endpoint = Administration(AdministrationOptions(**settings))
        build_app(None, [Mounted(endpoint=endpoint, key="endpoint:x", prefix="")], options)

    with pytest.raises(ConfigError, match="endpoint:x is a client's") as caught:
        build(enabled=True, key="0perator")
    assert "0perator" not in str(caught.value)
    build(enabled=True, key="a key that no client has")
    build(enabled=False, key="0perator")


def asked(client):
    """A request that runs in a thread: (the thread, where its answer will be)."""
    answers = []

    def ask():
        answers.append(client.post("/v1/completions", json={"prompt": "waited"}).json())

    thread = threading.Thread(target=ask)
    thread.start()
    return thread, answers


def wait_for_load(client, number):
    end = time.monotonic() + SECONDS
    while client.get("/load").json()["waiting"] != number:
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("begin", "end", "level"),
    [("/sleep", "/wake_up", 1), ("/sleep", "/wake_up", 2), ("/pause", "/resume", None)],
)
def test_requests_wait_for_a_server_that_sleeps_or_is_paused(client, operator, begin, end, level):
    parameters = {} if level is None else {"level": level}
    assert operator.post(begin, params=parameters).status_code == 200
    thread, answers = asked(client)
    try:
        assert operator.get("/is_sleeping").json() == {"is_sleeping": level is not None}
        assert client.get("/health").status_code == 200
        if level is not None:
            assert operator.post("/resume").status_code == 200, "that wakes nobody"
        wait_for_load(client, 1)
    finally:
        assert operator.post(end).status_code == 200
        thread.join(SECONDS)
    assert answers[0]["choices"][0]["text"] == "waited"
    assert operator.get("/is_sleeping").json() == {"is_sleeping": False}


def test_a_prefix_is_not_hit_after_a_reset(client, operator):
    def cached():
        usage = client.post("/v1/completions", json={"prompt": "p" * 40}).json()["usage"]
        return usage["prompt_tokens_details"]["cached_tokens"]

    cached()
    assert cached() > 0
    assert operator.post("/reset_prefix_cache").json() == {"reset": True}
    assert cached() == 0


@pytest.mark.parametrize("level", ["0", "3", "deep", ""])
def test_a_level_that_does_not_exist_is_a_400(operator, level):
    response = operator.post("/sleep", params={"level": level})
    assert response.status_code == 400
    assert "level" in response.json()["error"]["message"]
    assert operator.get("/is_sleeping").json() == {"is_sleeping": False}


def test_a_slip_in_the_query_puts_nothing_to_sleep(operator):
    response = operator.post("/sleep", params={"lvl": 2})
    assert response.status_code == 400
    assert "lvl" in response.json()["error"]["message"]
    assert operator.get("/is_sleeping").json() == {"is_sleeping": False}


def test_server_info_shows_settings_and_no_secret(operator):
    response = operator.get("/server_info")
    found = response.json()
    assert (found["models"], found["max_model_len"]) == (["echo://"], 256)
    assert found["settings"]["scheduler.max_num_seqs"] > 0
    assert "0perator" not in response.text
    assert "client" not in response.text


@pytest.mark.parametrize("path", POST[-3:])
def test_where_no_adapters_are_served_that_is_told(operator, path):
    asked = {"lora_name": "a", **({"lora_path": "b"} if "/load" in path else {})}
    response = operator.post(path, json=asked)
    assert response.status_code == 400
    assert "enable_lora" in response.json()["error"]["message"]


@pytest.mark.parametrize("key", [None, ""])
def test_a_switch_without_a_key_stops_the_start(key):
    options = AdministrationOptions(enabled=True, key=key)
    with pytest.raises(ConfigError, match="without a key"):
        Administration(options).routes(None)


@pytest.mark.parametrize("key", ["schlüssel", "a\nb", "a\x7f", " key", "key "])
def test_a_key_that_no_client_can_send_stops_the_start(key):
    """Nobody would get in, whatever they send."""
    options = AdministrationOptions(enabled=True, key=key)
    with pytest.raises(ConfigError, match="cannot be sent in a header"):
        Administration(options).routes(None)


@pytest.mark.parametrize("rest", ["/pause", "/sleep"])
def test_a_server_that_is_told_to_end_serves_those_who_wait_for_it(serve, rest):
    """Whoever told it to rest cannot ask it to go on: it lets nobody in any more."""
    server = serve(root=(f"{OPTION}.enabled=true", f"{OPTION}.key=0perator"))
    answers = {}

    def ask(stream):
        body = {"prompt": "patient", "stream": stream}
        answers[stream] = httpx.post(f"{server.url}/v1/completions", json=body, timeout=SECONDS)

    threads = [threading.Thread(target=ask, args=(stream,)) for stream in (False, True)]
    assert httpx.post(server.url + rest, headers=bearer("0perator"), timeout=SECONDS).is_success
    for thread in threads:
        thread.start()
    end = time.monotonic() + SECONDS
    while server.counted("num_requests_waiting") < 2:
        assert time.monotonic() < end, "they do not wait"
        time.sleep(0.05)
    assert server.stop() == 0
    for thread in threads:
        thread.join()
    assert answers[False].json()["choices"][0]["text"] == "patient"
    assert answers[True].text.endswith("data: [DONE]\n\n")
    assert "error" not in answers[True].text
