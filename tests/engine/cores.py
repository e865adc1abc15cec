"""What the tests of dying and hanging cores ask of an engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from framework.contracts.sampling import OutputKind, SamplingParams
from framework.engine.async_engine import AsyncEngine
from framework.errors import EngineRestartingError

DELTA = SamplingParams(max_tokens=64, output_kind=OutputKind.DELTA)
LIMIT = 120
"""Seconds for anything to happen that must."""


async def text_of(engine: AsyncEngine, prompt: str) -> str:
    """What a stream gives, put together."""
    return "".join([o.outputs[0].text async for o in engine.generate(prompt, DELTA)])


async def until(condition: Callable[[], object]) -> None:
    """Wait for it, other tasks of the loop going on."""
    async with asyncio.timeout(LIMIT):
        while not condition():
            await asyncio.sleep(0.02)


def healthy(engine: AsyncEngine) -> bool:
    """False while another core is started; raises EngineDeadError when none will be."""
    try:
        engine.check_health()
    except EngineRestartingError:
        return False
    return True
