"""Every tool parser behind the server, through OpenAI's own client."""

from __future__ import annotations

import asyncio
import json

import httpx
import openai
import pytest

from framework.contracts.front_end import Mounted
from framework.engine.async_engine import AsyncEngine
from framework.testing.fake_model import MODEL, fake_plugins
from framework_http.application import build_app
from framework_http.openai.chat import Chat
from framework_http.options import HostOptions

ARGUMENTS = {"city": 'Pa"ris}', "days": [1, {"a": "é"}], "long": "x" * 30}
TEXT = json.dumps(ARGUMENTS)
WRITTEN = {
    "hermes": f'<tool_call>{{"name": "weather", "arguments": {TEXT}}}</tool_call>',
    "llama3_json": f'<|python_tag|>{{"name": "weather", "parameters": {TEXT}}}',
    "mistral": f"[TOOL_CALLS]weather[ARGS]{TEXT}",
}
TOOLS = [{"type": "function", "function": {"name": name}} for name in ("weather", "clock")]


def ask(parser, content, **fields):
    """The answer of a server whose model says what the user said."""

    async def run():
        async with AsyncEngine(
            MODEL,
            in_process=True,
            plugins=fake_plugins(),
            executor="echo",
            plugin_options={"executor.echo.max_model_len": 1000},
            tool_parser=parser,
        ) as engine:
            mounted = Mounted(endpoint=Chat(), key="endpoint:chat@here", prefix="")
            transport = httpx.ASGITransport(build_app(engine, [mounted], HostOptions()))
            async with httpx.AsyncClient(transport=transport) as http:
                client = openai.AsyncOpenAI(
                    base_url="http://test/v1", api_key="none", http_client=http, max_retries=0
                )
                found = await client.chat.completions.create(
                    model=MODEL,
                    messages=[{"role": "user", "content": content}],
                    tools=TOOLS,
                    **fields,
                )
                return [chunk async for chunk in found] if fields.get("stream") else found

    return asyncio.run(run())


@pytest.mark.parametrize("parser", WRITTEN)
def test_a_stream_brings_the_arguments_as_they_come(parser):
    chunks = ask(parser, WRITTEN[parser], stream=True)
    deltas = [chunk.choices[0].delta for chunk in chunks]
    parts = [part for delta in deltas for part in delta.tool_calls or ()]
    assert [part.function.name for part in parts if part.function.name] == ["weather"]
    assert parts[0].id
    assert all(part.index == 0 for part in parts)
    texts = [part.function.arguments for part in parts if part.function.arguments]
    assert len(texts) > 30
    assert json.loads("".join(texts)) == ARGUMENTS
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize("parser", WRITTEN)
def test_a_whole_answer_has_the_same_call(parser):
    choice = ask(parser, WRITTEN[parser]).choices[0]
    (call,) = choice.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", ARGUMENTS)
    assert choice.finish_reason == "tool_calls"
    assert WRITTEN[parser][:5] not in choice.message.content


@pytest.mark.parametrize("parser", WRITTEN)
def test_a_call_of_no_tool_of_the_request_is_content(parser):
    written = WRITTEN[parser].replace("weather", "delete")
    choice = ask(parser, written).choices[0]
    assert not choice.message.tool_calls
    assert written in choice.message.content
    assert choice.finish_reason == "stop"


@pytest.mark.parametrize("stream", [False, True])
def test_the_token_that_ends_an_answer_is_no_content(stream):
    """Special tokens are part of the text where tools may be called."""
    found = ask("hermes", "say <eos>", stream=stream)
    if stream:
        text = "".join(chunk.choices[0].delta.content or "" for chunk in found)
    else:
        text = found.choices[0].message.content
    assert text == "<turn>user: say <eos><turn>assistant: "


def test_a_call_that_is_cut_off_keeps_what_came():
    """The answer begins with the 12 characters of the conversation's marks."""
    choice = ask("hermes", WRITTEN["hermes"], max_tokens=80).choices[0]
    (call,) = choice.message.tool_calls
    assert TEXT.startswith(call.function.arguments)
    assert len(call.function.arguments) > 10
    assert choice.finish_reason == "length"
