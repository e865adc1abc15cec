"""`framework chat` and `complete` with a server: streams, keys, and what can go wrong."""

from __future__ import annotations

import socket

import pytest

from framework.testing.fake_model import MODEL, fake_plugins
from framework_commands.api.address import Address

ROOT = [f"--plugin={key}={value}" for key, value in fake_plugins().items()]
ECHO = ["--model", MODEL, "--set", "executor=echo"]


def delta(words, ending=None):
    return {"choices": [{"index": 0, "delta": {"content": words}, "finish_reason": ending}]}


def test_a_conversation_with_a_server_is_that_with_a_model_here(run, url):
    lines = "hi\n/reset\nyou\nand you\n"
    here = run(*ROOT, "chat", *ECHO, "--system", "S", stdin=lines)
    there = run("chat", "--url", url, "--system", "S", stdin=lines)
    assert there == here
    assert there[1].splitlines()[0] == "system: Suser: hiassistant: "


def test_sampling_flags_reach_the_server(run, url):
    assert run("chat", "--url", url, "--max-tokens", "4", stdin="hi\n")[1] == "use\n"
    assert run("complete", "--url", url, "abcdef", "--stop", "d")[1] == "abc\n"


def test_texts_are_continued_here_and_there(run, url):
    here = run(*ROOT, "complete", *ECHO, "one", "two")
    assert here == (0, "one\ntwo\n", "")
    assert run("complete", "--url", f"{url}/v1/", "one", "two") == here
    assert run("complete", "--url", url, stdin="one\n\ntwo\n") == here


def test_the_key_comes_from_the_environment_and_a_socket_is_an_address(
    run, serve, monkeypatch, tmp_path
):
    path = tmp_path / "s.sock"
    root = ("--plugin-option", f"front_end.http.uds={path}")
    serve("--api-key", "s3cret", "--in-process", root=root)
    code, out, err = run("complete", "--url", f"unix:{path}", "a")
    assert (code, out) == (1, "")
    assert "does not accept the API key" in err
    assert "FRAMEWORK_API_KEY" in err
    monkeypatch.setenv("FRAMEWORK_API_KEY", "s3cret")
    assert run("complete", "--url", f"unix:{path}", "a") == (0, "a\n", "")


def test_a_server_that_is_not_there_is_one_message(run):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        code, out, err = run("chat", "--url", url, stdin="hi\n")
    assert (code, out) == (1, "")
    assert err.startswith(f"error: no server answers at {url}")
    assert "Traceback" not in err


BREAKS = {
    "cut": ({"broken": True, "done": False}, "broke off"),
    "ended early": ({"done": False}, "ended without its last event"),
    "told": ({"done": True}, "the engine died"),
    "rubbish": ({"done": True}, "is no JSON"),
}


@pytest.mark.parametrize("kind", BREAKS)
def test_a_stream_that_breaks_is_told_and_the_next_question_answered(run, fake, kind):
    how, words = BREAKS[kind]
    more = {"told": [{"error": {"message": "the engine died"}}], "rubbish": ["{"]}.get(kind, [])
    asked = []

    def answer(handler, body):
        asked.append([message["content"] for message in body["messages"]])
        if len(asked) == 1:
            handler.events(delta("some"), *more, **how)
        else:
            handler.events(delta("fine", "stop"))

    url = fake({"/v1/chat/completions": answer})
    code, out, err = run("chat", "--url", url, stdin="one\ntwo\n")
    assert code == 1
    assert out == "somefine\n"
    assert words in err
    assert asked == [["one"], ["two"]]


def test_a_context_that_is_full_forgets_the_oldest_exchange(run, fake):
    asked = []

    def answer(handler, body):
        asked.append(len(body["messages"]))
        if len(body["messages"]) > 3:
            handler.reply(400, {"error": {"message": "maximum context length exceeded"}})
        else:
            handler.events(delta("ok", "stop"))

    url = fake({"/v1/chat/completions": answer})
    code, out, err = run("chat", "--url", url, stdin="1\n2\n3\n")
    assert (code, out) == (0, "ok\nok\nok\n"), err
    assert asked == [1, 3, 5, 3]
    assert "1 oldest exchange(s) were forgotten" in err


@pytest.mark.parametrize("command", ["chat", "complete"])
@pytest.mark.parametrize("flag", ["--dtype", "--quantization"])
def test_flags_of_an_engine_beside_a_url_are_refused(run, url, command, flag):
    code, _, err = run(command, "--url", url, flag, "float32", stdin="hi\n")
    assert code == 1
    assert flag in err


@pytest.mark.parametrize(
    ("text", "base", "socket_path"),
    [
        ("localhost:8000", "http://localhost:8000", None),
        ("https://example.org/llm/v1/", "https://example.org/llm", None),
        ("unix:/run/x.sock", "http://server", "/run/x.sock"),
    ],
)
def test_addresses(text, base, socket_path):
    found = Address.parse(text, "k")
    assert (found.base, found.socket) == (base, socket_path)
    assert "'k'" not in repr(found)


@pytest.mark.parametrize("text", ["", "ftp://x", "http://", "unix:"])
def test_what_is_no_address_is_told(run, text):
    code, _, err = run("chat", "--url", text)
    assert code == 1
    assert "--url is no address" in err
