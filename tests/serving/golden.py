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
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>'
FAILS = "boom"
"""A prompt that makes the runner fail in the third step."""


class Failing(EchoExecutor):
    """Echoes, and fails one row of a prompt that begins with FAILS."""

    def __init__(self, options: BaseModel | None = None) -> None:
        super().__init__(options)
        self._echo, self.script = self.script, self._next

    def _next(self, request: Any, position: int, before: int) -> int:
        fails = request.tokens[: len(FAILS)].tolist() == list(FAILS.encode())
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
    response = await found.post(path, json={**body, "stream": True})
    text = response.text
    for pattern, instead in (
        (r'"(cmpl|chatcmpl|call)([-_])[0-9a-f]+"', r'"\1\2ID"'),
        (r'"created":\d+', '"created":0'),
    ):
        text = re.sub(pattern, instead, text)
    return f"{response.status_code} {response.headers['content-type']}\n\n{text}"


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
