"""The engine that endpoints and front ends of the kit are given: a small one, watched."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

from framework.engine.async_engine import AsyncEngine
from framework.testing.fake_model import MODEL, fake_plugins

WORK = frozenset(("generate", "render_chat", "with_tokenizer", "abort"))


class Watched:
    """A service that passes everything on.

    used: names of what was asked of it.  running: generations that were begun and have not ended.
    before, between: what a generation waits for before its first output, and after it; None:
    nothing.  held: set when one waits there.  fails: what the next generations raise, before or,
    if `late`, after their first output.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self.used: list[str] = []
        self.running = 0
        self.before: asyncio.Event | None = None
        self.between: asyncio.Event | None = None
        self.held = asyncio.Event()
        self.fails: Exception | None = None
        self.late = False

    def __getattr__(self, name: str) -> Any:
        self.used.append(name)
        return getattr(self._engine, name)

    async def generate(self, *given: Any, **named: Any) -> AsyncGenerator[Any, None]:
        """See Service."""
        self.used.append("generate")
        before, between = self.before, self.between
        self.running += 1
        try:
            await self._wait(before)
            if self.fails is not None and not self.late:
                raise self.fails
            async with aclosing(self._engine.generate(*given, **named)) as outputs:
                async for output in outputs:
                    if self.fails is not None and output.finished:
                        raise self.fails
                    if not output.finished or between is None:
                        yield output
                        await self._wait(between)
                    else:
                        await self._wait(between)
                        yield output
        finally:
            self.running -= 1

    async def _wait(self, gate: asyncio.Event | None) -> None:
        if gate is not None:
            self.held.set()
            await gate.wait()

    @property
    def worked(self) -> bool:
        """The engine was asked to do something."""
        return bool(WORK & set(self.used))


@asynccontextmanager
async def small_engine() -> AsyncIterator[AsyncEngine]:
    """An engine of this process that echoes its prompts."""
    async with AsyncEngine(
        MODEL, in_process=True, plugins=fake_plugins(), executor="echo", max_model_len=200
    ) as engine:
        yield engine
