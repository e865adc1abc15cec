"""`framework run-batch`: nothing is lost, whatever a line or a server does."""

from __future__ import annotations

import asyncio
import io
import json
import threading

import httpx
import pytest

from framework.errors import EngineDeadError
from framework.testing.fake_model import MODEL, fake_plugins
from framework_commands.batch.lines import Request, Wrong, keep_done, read_requests
from framework_commands.batch.work import Results, Sender, work

ROOT = [f"--plugin={key}={value}" for key, value in fake_plugins().items()]
ECHO = ["--model", MODEL, "--set", "executor=echo"]


def request(name, prompt, **more):
    body = {"prompt": prompt, "temperature": 0}
    return {"custom_id": name, "method": "POST", "url": "/v1/completions", "body": body, **more}


def chat(name, text):
    body = {"messages": [{"role": "user", "content": text}]}
    return {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body}


@pytest.fixture
def batch(tmp_path):
    """(a function that writes the requests, file of requests, file of results)."""
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"

    def write(*lines):
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        source.write_text("\n".join(texts) + "\n")

    return write, source, target


def results(target):
    return [json.loads(line) for line in target.read_text().splitlines()]


def test_requests_go_through_the_endpoints_without_a_port(run, batch):
    write, source, target = batch
    write(
        request("a", "one"),
        chat("b", "two"),
        "{",
        request("c", ""),
        request("d", "three", url="/v1/nothing"),
        "",
        {"custom_id": "e"},
        request("a", "again"),
        request("f", "four"),
    )
    # A key that guards a server is none of a socket that nobody else sees.
    config = source.with_name("engine.yaml")
    config.write_text("plugin: {plugin_options: {front_end: {http: {api_keys: [s3cret]}}}}")
    words = ["--order", "input", "--max-concurrency", 3, "--config", config]
    code, _, err = run(*ROOT, "run-batch", *ECHO, "-i", source, "-o", target, *words)
    assert code == 1
    assert "8 results, 5 with errors" in err
    found = results(target)
    assert [row["custom_id"] for row in found] == ["a", "b", None, "c", "d", "e", None, "f"]
    good = [row for row in found if row["error"] is None]
    assert [row["custom_id"] for row in good] == ["a", "b", "f"]
    assert {row["response"]["status_code"] for row in good} == {200}
    assert good[0]["response"]["body"]["choices"][0]["text"] == "one"
    assert good[1]["response"]["body"]["choices"][0]["message"]["content"].startswith("user: two")
    assert good[0]["response"]["request_id"]
    assert len({row["id"] for row in found}) == 8
    assert found[2]["response"] is None
    assert found[2]["error"]["code"] == "invalid_line"
    assert found[2]["error"]["message"].startswith("line 3: the line is no JSON")
    assert (found[3]["response"]["status_code"], found[3]["error"]["code"]) == (400, "400")
    assert found[4]["response"]["status_code"] == 404
    assert "url is None" in found[5]["error"]["message"]
    assert "another line has the custom_id 'a'" in found[6]["error"]["message"]


def test_a_server_gives_the_same_results(run, batch, url):
    write, source, target = batch
    write(request("a", "one"), chat("b", "two"))
    assert run("run-batch", "-i", source, "-o", target, "--url", url)[0] == 0
    found = {row["custom_id"]: row["response"]["body"] for row in results(target)}
    assert found["a"]["choices"][0]["text"] == "one"
    assert found["b"]["choices"][0]["message"]["content"].startswith("user: two")


def test_results_that_are_there_are_kept_unless_told(run, batch, url):
    write, source, target = batch
    write(request("a", "one"))
    words = ["run-batch", "-i", source, "-o", target, "--url", url]
    assert run(*words)[0] == 0
    code, _, err = run(*words)
    assert code == 1
    assert "--resume" in err
    assert run(*words, "--overwrite")[0] == 0
    assert len(results(target)) == 1
    assert run("run-batch", "-i", source, "-o", source, "--url", url)[0] == 1


def test_a_batch_that_stopped_goes_on(run, batch, url):
    """Answers stay, what may do better is asked again, and a line that was cut goes."""
    write, source, target = batch
    names = "abcdef"
    write(*(request(name, name * 3) for name in names))
    kept = {"custom_id": "a", "response": {"status_code": 200, "body": "kept"}, "error": None}
    wrong = {"custom_id": "b", "response": {"status_code": 400, "body": "kept"}, "error": {}}
    busy = {"custom_id": "c", "response": {"status_code": 503, "body": "gone"}, "error": {}}
    lost = {"custom_id": "d", "response": None, "error": {"code": "unreachable"}}
    text = "".join(json.dumps(row) + "\n" for row in (kept, busy, wrong, lost))
    target.write_text(text + '{"custom_id": "e", "resp')
    code, _, err = run("run-batch", "-i", source, "-o", target, "--url", url, "--resume")
    assert code == 0
    assert "4 results, 0 with errors, 2 were there" in err
    found = results(target)
    assert sorted(row["custom_id"] for row in found) == list(names)
    assert found[:2] == [kept, wrong]
    assert {row["response"]["body"]["choices"][0]["text"] for row in found[2:]} == {
        name * 3 for name in "cdef"
    }


def test_a_model_that_cannot_be_loaded_leaves_no_file(run, batch):
    write, source, target = batch
    write(request("a", "one"))
    words = ["--model", "://unknown", "--set", "executor=echo"]
    code, _, err = run(*ROOT, "run-batch", *words, "-i", source, "-o", target)
    assert code == 1
    assert err.startswith("error: ")
    assert not target.exists()


def test_a_file_that_holds_no_results_is_not_touched(tmp_path):
    from framework.errors import ConfigError

    file = tmp_path / "notes.txt"
    file.write_text("dear diary\nnothing\n")
    with pytest.raises(ConfigError, match="no result of a batch"):
        keep_done(file)
    assert file.read_text() == "dear diary\nnothing\n"


def test_a_server_that_is_not_there_gives_every_line_its_error(run, batch):
    write, source, target = batch
    write(request("a", "one"), request("b", "two"))
    code, _, err = run("run-batch", "-i", source, "-o", target, "--url", "http://127.0.0.1:9")
    assert code == 1
    assert "2 results, 2 with errors" in err
    assert {row["error"]["code"] for row in results(target)} == {"unreachable"}


# Pieces, without a server


def lines(tmp_path, *rows):
    file = tmp_path / "in.jsonl"
    file.write_bytes(b"\n".join(rows))
    return list(read_requests(file, ()))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b"\xff", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "no object"),
        (b'{"url": "/v1/x", "body": {}}', "custom_id is missing"),
        (b'{"custom_id": 3, "url": "/v1/x", "body": {}}', "custom_id is missing"),
        (b'{"custom_id": "a", "method": "GET", "url": "/v1/x", "body": {}}', "method is 'GET'"),
        (b'{"custom_id": "a", "url": "http://x", "body": {}}', "expected a path"),
        (b'{"custom_id": "a", "url": "/v1/x", "body": []}', "body is missing"),
        (b'{"custom_id": "a", "url": "/v1/x", "body": {"stream": true}}', "stream"),
    ],
)
def test_what_is_wrong_with_a_line_is_told(tmp_path, row, reason):
    good = b'{"custom_id": "good", "url": "/v1/x", "body": {}}'
    first, wrong, last = lines(tmp_path, good, row, good.replace(b"good", b"last"))
    assert isinstance(wrong, Wrong)
    assert reason in wrong.reason
    assert first == Request(0, "good", "/v1/x", {})
    assert last == Request(2, "last", "/v1/x", {})


def worked(handler, requests, *, ordered=False, concurrency=2, **more):
    sink = io.StringIO()
    made = Results(sink, ordered=ordered)

    async def go():
        transport = httpx.MockTransport(handler)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as http:
            sender = Sender(http=http, url="server", **more)
            await work(iter(requests), sender, made, concurrency)

    asyncio.run(go())
    return [json.loads(line) for line in sink.getvalue().splitlines()]


def test_results_come_as_they_are_ready_or_in_order():
    requests = [Request(n, str(n), "/v1/x", {"n": n}) for n in range(6)]

    async def slow_first(sent):
        number = json.loads(sent.content)["n"]
        for _ in range(50 if number == 0 else 1):
            await asyncio.sleep(0)
        return httpx.Response(200, json={"n": number})

    names = [row["custom_id"] for row in worked(slow_first, requests)]
    assert sorted(names) == list("012345")
    assert names[0] != "0"
    assert [row["custom_id"] for row in worked(slow_first, requests, ordered=True)] == list(
        "012345"
    )


def test_a_busy_server_is_asked_again_when_it_says():
    asked, waits = [], []

    def busy(sent):
        asked.append(1)
        if len(asked) < 3:
            return httpx.Response(429, headers={"retry-after": "7"}, json={})
        return httpx.Response(200, json={})

    async def sleep(seconds):
        waits.append(seconds)

    one = [Request(0, "a", "/v1/x", {})]
    (row,) = worked(busy, one, sleep=sleep)
    assert (row["response"]["status_code"], waits) == (200, [7.0, 7.0])
    asked.clear()
    (row,) = worked(busy, one, sleep=sleep, retries=1)
    assert row["response"]["status_code"] == 429


def test_an_engine_that_is_dead_ends_the_batch():
    def gone(sent):
        raise httpx.ReadError("gone")

    def check():
        raise EngineDeadError("the engine is dead")

    requests = [Request(n, str(n), "/v1/x", {}) for n in range(5)]
    with pytest.raises(EngineDeadError):
        worked(gone, requests, check=check)
    rows = worked(gone, requests)
    assert [row["error"]["code"] for row in rows] == ["unreachable"] * 5


def test_more_are_under_way_than_one(fake, run, batch):
    """Two requests that wait for each other are both answered."""
    write, source, target = batch
    write(request("a", "one"), request("b", "two"))
    both = threading.Barrier(2, timeout=60)

    def answer(handler, body):
        both.wait()
        handler.reply(200, {"ok": True})

    url = fake({"/v1/completions": answer})
    assert run("run-batch", "-i", source, "-o", target, "--url", url)[0] == 0
    assert len(results(target)) == 2
