"""Faults that keep coming back in servers like this one, each with its right value over HTTP.

Numbers are those of the list that the project keeps.  Of others the tests stand where they belong:
3 in tests/engine/test_outputs.py, 5 in tests/engine/test_detokenizer.py, 23 in test_fuzz.py, 25 in
test_golden.py, 28 in the tests of the HTTP server.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from types import SimpleNamespace

import httpx
import pytest

from framework import SamplingParams
from framework.engine.async_engine import AsyncEngine
from framework.engine.detokenizer import Detokenizer
from framework.engine.serve import mount
from framework.testing.byte_tokenizer import ByteTokenizer
from framework.testing.fake_model import MODEL, EchoTokenizer, fake_plugins
from framework_http.application import build_app
from framework_http.openai.shapes import finite
from framework_http.options import HostOptions
from framework_text.chat import render
from framework_text.template_process import TemplateProcess
from tests.serving.wire import events

LIMIT = 60
"""Seconds for anything to happen that must."""
LENGTH = 256
"""max_model_len of the echo model."""


@asynccontextmanager
async def serving(**options):
    """(engine, application, client) of the echo model, without a socket."""
    options = {"plugins": fake_plugins(), "executor": "echo", **options}
    async with AsyncEngine(MODEL, in_process=True, **options) as engine:
        app = build_app(engine, mount(engine.registry, {}), HostOptions())
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            yield engine, app, client


def asked(*bodies, path="/v1/completions"):
    """The responses to some requests, one after the other."""

    async def run():
        async with serving() as (_, _, client):
            return [await client.post(path, json=body) for body in bodies]

    return asyncio.run(run())


def streamed(response):
    """Text and events of one streamed completion."""
    found = events(response.content)
    return "".join(e["choices"][0]["text"] for e in found if e["choices"]), found


@pytest.mark.parametrize("stop", ["e, t", ", two", "wo", "one"])
def test_field_bug_1_no_part_of_a_stop_string_leaks_into_a_stream(stop):
    body = {"prompt": "one, two", "stop": [stop, "never"]}
    whole, stream = asked(body, {**body, "stream": True})
    text, _ = streamed(stream)
    assert text == whole.json()["choices"][0]["text"] == "one, two".partition(stop)[0]


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
def test_field_bug_2_of_several_tokens_the_stop_that_completes_first_wins(cut):
    found = Detokenizer(ByteTokenizer(), stops=["d", "bc"])
    tokens = list(b"abcd")
    for start in range(0, len(tokens), cut):
        found.push(tokens[start : start + cut])
    found.finish()
    assert (found.stop, found.take()) == ("bc", "a")
    assert found.num_tokens == 3


@pytest.mark.parametrize(
    ("prompt", "most", "text"),
    [
        (list("ä🙂ß".encode()), 20, "ä🙂ß"),
        ([0xA1], 5, "\N{REPLACEMENT CHARACTER}"),
        (list("a🙂".encode()), 3, "a\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_field_bug_4_half_a_character_is_held_back_and_replaced_only_at_the_end(prompt, most, text):
    body = {"prompt": prompt, "max_tokens": most}
    whole, stream = asked(body, {**body, "stream": True})
    assert whole.json()["choices"][0]["text"] == text
    found, parts = streamed(stream)
    assert found == text
    if prompt != [0xA1]:  # which begins no character; others may still become one
        assert all("\ufffd" not in p["choices"][0]["text"] for p in parts[:-1])


def test_field_bug_6_bytes_of_tokens_make_up_the_text():
    body = {"messages": [{"role": "user", "content": "🙂ä"}], "logprobs": True, "max_tokens": 60}
    (whole,) = asked(body, path="/v1/chat/completions")
    choice = whole.json()["choices"][0]
    said = b"".join(bytes(t["bytes"]) for t in choice["logprobs"]["content"]).decode()
    assert "🙂ä" in said
    assert choice["message"]["content"] in said.replace("<turn>", "")


def test_field_bug_7_prompt_logprobs_are_whole_under_chunks_and_preemption():
    prompts = [f"prompt {k} " + "x" * 10 * k for k in range(5)]
    sampling = SamplingParams(max_tokens=20, prompt_logprobs=2)

    async def scored(**options):
        async with serving(**options) as (engine, _, _):

            async def one(prompt):
                return [output async for output in engine.generate(prompt, sampling)][-1]

            await engine.pause()  # until all are there, or some would end before others begin
            tasks = [asyncio.create_task(one(prompt)) for prompt in prompts]
            await until(lambda: engine.snapshot().value("num_requests_waiting") == len(prompts))
            await engine.resume()
            outputs = await asyncio.gather(*tasks)
            preempted = engine.snapshot().value("num_preemptions")
            return [output.prompt_logprobs for output in outputs], preempted

    once, _ = asyncio.run(scored())
    tight = {"max_num_batched_tokens": 7, "num_pages": 24, "max_model_len": 90}
    found, preempted = asyncio.run(scored(**tight))
    assert preempted > 0
    assert found == once
    assert [len(entries) for entries in found] == [len(prompt) for prompt in prompts]


def test_field_bug_8_streamed_logprobs_come_once_and_are_finite():
    body = {"prompt": "logprobs", "logprobs": 2}
    whole, stream = asked(body, {**body, "stream": True})
    _, parts = streamed(stream)
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        joined = [value for p in parts for value in p["choices"][0]["logprobs"][name]]
        assert joined == whole.json()["choices"][0]["logprobs"][name], name
    assert json.dumps(finite(float("-inf")), allow_nan=False) == "-9999.0"


async def until(condition):
    async with asyncio.timeout(LIMIT):
        while not condition():
            await asyncio.sleep(0.005)


class Leaving:
    """A client that asks over ASGI and goes away when `leave` is set."""

    def __init__(self, app, body):
        self.leave, self.pieces = asyncio.Event(), []
        self._body = json.dumps(body).encode()
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "path": "/v1/completions",
            "raw_path": b"/v1/completions",
            "root_path": "",
            "scheme": "http",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json")],
            "client": ("test", 1),
            "server": ("test", 80),
        }
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self):
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.leave.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message):
        self.pieces.append(message.get("body", b""))
        if b'"finish_reason":"stop"' in self.pieces[-1]:
            self.leave.set()  # the last step


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("moment", ["queued", "prefill", "decode", "last step"])
def test_field_bug_22_whoever_goes_away_leaves_nothing_behind(moment, stream):
    """Of 50 outputs, one at a time, each 30 steps of prefill and 121 of decode, of 5 ms: whoever
    goes away during the first leaves most of it undone, however slow the machine."""

    async def run():
        options: dict = {"plugin_options": {"executor.echo.delay": 0.005}}
        short = moment == "last step"
        options.update(max_num_batched_tokens=4, max_num_seqs=1)
        async with serving(**options) as (engine, app, _):
            if moment == "queued":
                await engine.pause()
            asked = {"prompt": "x" * 3} if short else {"prompt": "x" * 120, "n": 50}
            client = Leaving(app, {**asked, "temperature": 1, "stream": stream})

            def counted(name):
                return engine.snapshot().value(name)

            names = {"queued": "num_requests_waiting", "prefill": "num_requests_running"}
            name = names.get(moment, "generation_tokens")
            await until(client.leave.is_set if short else lambda: counted(name))
            client.leave.set()
            await asyncio.wait_for(client.task, LIMIT)
            await engine.resume()
            async with asyncio.timeout(LIMIT):
                while True:
                    stats = await engine.stats()
                    if (stats.running, stats.waiting, stats.pages_used) == (0, 0, 0):
                        break
                    await asyncio.sleep(0.005)
            await engine.check_integrity()
            assert counted("generation_tokens") < 50 * 121, "nothing was computed for nobody"

    asyncio.run(run())


@pytest.mark.parametrize(
    ("size", "status"),
    [(0, 400), (LENGTH - 1, 200), (LENGTH, 400), (LENGTH + 1, 400), (10 * 2**20, 400)],
)
def test_field_bug_24_a_prompt_of_any_length_is_served_or_a_400(size, status):
    found = asked({"prompt": "a" * size}, {"prompt": "a" * size, "max_tokens": -1})
    assert [response.status_code for response in found] == [status, 400]
    if status == 200:
        assert found[0].json()["usage"]["total_tokens"] == LENGTH


CONTENTS = [{"content": "hi"}, {"content": [{"type": "text", "text": "hi"}]}, {"content": None}, {}]


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
def test_field_bug_26_every_role_with_every_form_of_content_is_read_alike(role):
    """No content is an empty text; no call is no call."""
    bodies = [
        {
            "messages": [
                {"role": role, **content, "tool_calls": []},
                {"role": "user", "content": "go on"},
            ],
            "max_tokens": 100,
        }
        for content in CONTENTS
    ]
    found = asked(*bodies, path="/v1/chat/completions")
    shown = "system" if role == "developer" else role  # where a template knows no developer
    assert [r.json()["choices"][0]["message"]["content"] for r in found] == [
        f"{shown}: {text}user: go onassistant: " for text in ("hi", "hi", "", "")
    ]


class Templated(ByteTokenizer):
    """Renders as tokenizers of the Transformers library do; the model itself has no template."""

    def __init__(self):
        super().__init__()
        self.chat_template = None
        self._library = SimpleNamespace(chat_template=None, special_tokens_map={})
        self._foreign = TemplateProcess()

    def render_chat(self, messages, **options):
        text = render(self._library, self._foreign, messages, **options)
        return self.encode(text)


class TemplatedLoader(EchoTokenizer):
    """Loads it."""

    def load(self, model):
        return Templated()


TEMPLATES = {
    "{{ messages[0].content }}": 200,
    "{% if %}": 400,
    "{{ 1 / 0 }}": 400,
    "{{ messages[7].content.x }}": 400,
    "{{ raise_exception('no tools') }}": 400,
    None: 400,
}


def test_field_bug_26_no_template_and_one_that_fails_are_a_400():
    async def run():
        plugins = {**fake_plugins(), "tokenizer:echo": f"{__name__}:TemplatedLoader"}
        options = {"endpoint.chat.client_templates": True}
        async with serving(plugins=plugins, plugin_options=options) as (_, _, client):
            body = {"messages": [{"role": "user", "content": "hi"}]}
            path = "/v1/chat/completions"
            return [
                await client.post(path, json={**body, "chat_template": template})
                for template in TEMPLATES
            ]

    found = asyncio.run(run())
    assert [response.status_code for response in found] == list(TEMPLATES.values())
    assert found[0].json()["choices"][0]["message"]["content"] == "hi"
    assert all("template" in response.json()["error"]["message"] for response in found[1:])
