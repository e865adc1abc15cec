"""Streams as they must be, byte for byte: one file in golden/ for each option.

`make goldens-sse`, or `python -m tests.serving.golden`, writes the files anew; read the difference
before it is committed.  What differs from run to run (ids, times) is replaced.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from pydantic import BaseModel

from framework.engine.async_engine import AsyncEngine
from framework.engine.serve import mount
from framework.testing.fake_model import MODEL, EchoExecutor, fake_plugins
from framework_http.application import build_app
from framework_http.options import HostOptions

FOLDER = Path(__file__).parent / "golden"
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
FUNCTIONS = [{"type": "function", "name": "weather", "parameters": {"type": "object"}}]
ANTHROPIC_TOOLS = [{"name": "weather", "input_schema": {"type": "object"}}]
CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>'
FAILS = "boom"
"""A prompt that makes the runner fail in the third step."""


class Failing(EchoExecutor):
    """Echoes, and fails one row of a prompt that holds FAILS."""

    def __init__(self, options: BaseModel | None = None) -> None:
        super().__init__(options)
        self._echo, self.script = self.script, self._next

    def _next(self, request: Any, position: int, before: int) -> int:
        prompt = request.tokens[: request.num_prompt]
        fails = FAILS.encode() in bytes(token for token in prompt.tolist() if token < 256)
        if fails and position == request.num_prompt + 2:
            self.fail_rows = {(self._step, 0): "the runner broke on purpose"}
        return self._echo(request, position, before)

    def _compute(self, plan: Any) -> Any:
        self._step = plan.step_id
        return super()._compute(plan)


def user(text: str) -> list[dict[str, str]]:
    """A conversation of one message."""
    return [{"role": "user", "content": text}]


USAGE = {"stream_options": {"include_usage": True}}
ALWAYS = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "completions-plain": (COMPLETIONS, {"prompt": "hey"}),
    "completions-characters": (COMPLETIONS, {"prompt": "ä🙂"}),
    "completions-include-usage": (COMPLETIONS, {"prompt": "hey", **USAGE}),
    "completions-continuous-usage": (COMPLETIONS, {"prompt": "hey", **ALWAYS}),
    "completions-empty-stream-options": (COMPLETIONS, {"prompt": "hey", "stream_options": {}}),
    "completions-logprobs": (COMPLETIONS, {"prompt": "hey", "logprobs": 2}),
    "completions-n": (COMPLETIONS, {"prompt": "hey", "n": 2, "temperature": 1}),
    "completions-stop": (COMPLETIONS, {"prompt": "one, two", "stop": [", t"]}),
    "completions-stop-included": (
        COMPLETIONS,
        {"prompt": "one, two", "stop": [", t"], "include_stop_str_in_output": True},
    ),
    "completions-length": (COMPLETIONS, {"prompt": "hey you", "max_tokens": 2}),
    "completions-token-ids": (COMPLETIONS, {"prompt": "hey", "return_token_ids": True}),
    "completions-echo": (COMPLETIONS, {"prompt": "hey", "echo": True}),
    "completions-echo-logprobs": (
        COMPLETIONS,
        {"prompt": "hey", "echo": True, "logprobs": 1, "max_tokens": 0},
    ),
    "completions-echo-alone": (COMPLETIONS, {"prompt": "hey", "echo": True, "max_tokens": 0}),
    "completions-error": (COMPLETIONS, {"prompt": FAILS + " later"}),
    "chat-plain": (CHAT, {"messages": user("hey")}),
    "chat-include-usage": (CHAT, {"messages": user("hey"), **USAGE}),
    "chat-continuous-usage": (CHAT, {"messages": user("hey"), **ALWAYS}),
    "chat-logprobs": (
        CHAT,
        {"messages": user("hey"), "logprobs": True, "top_logprobs": 2, "max_tokens": 2},
    ),
    "chat-n": (CHAT, {"messages": user("hey"), "n": 2, "temperature": 1, "max_tokens": 4}),
    "chat-stop": (CHAT, {"messages": user("one, two"), "stop": [", t"]}),
    "chat-tools": (CHAT, {"messages": user("so: " + CALL), "tools": TOOLS}),
    "chat-tools-none": (
        CHAT,
        {"messages": user("so: " + CALL), "tools": TOOLS, "tool_choice": "none"},
    ),
    # The model is shown the template, which opens the reasoning, and says it again.
    "chat-reasoning": (
        CHAT,
        {"messages": user("x"), "chat_template": "<think>hm", "max_tokens": 9},
    ),
    "responses-plain": (RESPONSES, {"input": "hey"}),
    "responses-instructions": (RESPONSES, {"input": "hey", "instructions": "be brief"}),
    "responses-logprobs": (
        RESPONSES,
        {
            "input": "hey",
            "include": ["message.output_text.logprobs"],
            "top_logprobs": 2,
            "max_output_tokens": 3,
        },
    ),
    "responses-length": (RESPONSES, {"input": "hey", "max_output_tokens": 3}),
    "responses-tools": (RESPONSES, {"input": "so: " + CALL, "tools": FUNCTIONS}),
    "responses-tools-none": (
        RESPONSES,
        {"input": "so: " + CALL, "tools": FUNCTIONS, "tool_choice": "none"},
    ),
    # What the user says opens the reasoning last, and so the model is said to think at first.
    "responses-reasoning": (RESPONSES, {"input": "hm</think>so<think>"}),
    "responses-error": (RESPONSES, {"input": FAILS}),
    "messages-plain": (MESSAGES, {"messages": user("hey")}),
    "messages-system": (MESSAGES, {"messages": user("hey"), "system": "be brief"}),
    "messages-stop": (MESSAGES, {"messages": user("one, two"), "stop_sequences": [", t"]}),
    "messages-length": (MESSAGES, {"messages": user("hey"), "max_tokens": 3}),
    "messages-tools": (MESSAGES, {"messages": user("so: " + CALL), "tools": ANTHROPIC_TOOLS}),
    "messages-tools-none": (
        MESSAGES,
        {
            "messages": user("so: " + CALL),
            "tools": ANTHROPIC_TOOLS,
            "tool_choice": {"type": "none"},
        },
    ),
    "messages-reasoning": (MESSAGES, {"messages": user("hm</think>so<think>")}),
    "messages-error": (MESSAGES, {"messages": user(FAILS)}),
}


@asynccontextmanager
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """Of an application whose model echoes, without a socket."""
    plugins = {**fake_plugins(), "executor:echo": f"{Failing.__module__}:Failing"}
    parsers = {"tool_parser": "hermes", "reasoning_parser": "qwen3"}
    options = {"endpoint.chat.client_templates": True}
    async with AsyncEngine(
        MODEL,
        in_process=True,
        plugins=plugins,
        executor="echo",
        plugin_options=options,
        **parsers,
    ) as engine:
        app = build_app(engine, mount(engine.registry, {}), HostOptions())
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as found:
            yield found


async def stream(found: httpx.AsyncClient, name: str) -> str:
    """What the server answers to one of BODIES, the same in every run."""
    path, body = BODIES[name]
    if path == MESSAGES:
        body = {"max_tokens": 200, **body}
    response = await found.post(path, json={**body, "stream": True})
    text = re.sub(r'"(created|created_at|completed_at)":\d+', r'"\1":0', response.text)
    return f"{response.status_code} {response.headers['content-type']}\n\n{_numbered(text)}"


def _numbered(text: str) -> str:
    """With ID, ID2, ... for ids, in their order: what is one thing stays one."""
    found: dict[str, list[str]] = {}

    def instead(match: re.Match[str]) -> str:
        ids = found.setdefault(match[1], [])
        if match[2] not in ids:
            ids.append(match[2])
        number = ids.index(match[2]) + 1
        return f'"{match[1]}ID{number if number > 1 else ""}"'

    return re.sub(r'"((?:cmpl|chatcmpl|call|resp|msg|fc|rs|toolu)[-_])([0-9a-f]+)"', instead, text)


async def streams() -> dict[str, str]:
    """Of all BODIES."""
    async with client() as found:
        return {name: await stream(found, name) for name in BODIES}


def main() -> None:
    """Write all files."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in asyncio.run(streams()).items():
        (FOLDER / f"{name}.sse").write_text(text, "utf-8")


if __name__ == "__main__":
    from tests.serving import golden

    golden.main()  # under the name that the executor is found by
