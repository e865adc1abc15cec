"""The files of prompts given as embeddings go with their requests, whatever ends these and
whoever keeps what it ended with."""

from __future__ import annotations

import asyncio
import os

import numpy as np
import pytest

from framework import LLM, SamplingParams
from framework.engine.async_engine import AsyncEngine
from framework.errors import EngineDeadError, InputError, OverloadedError
from framework.testing.fake_model import MODEL, fake_plugins
from framework.testing.occupant import WIDTH

SAMPLING = SamplingParams(max_tokens=4)
LIMIT = 60


def prompt(number):
    return {"prompt_embeds": np.full((3, WIDTH), number, np.float32)}


@pytest.fixture
def files(tmp_path, monkeypatch):
    """How many there are."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return lambda: sum(name.endswith(".npy") for *_, names in os.walk(tmp_path) for name in names)


async def _until(reached):
    async with asyncio.timeout(LIMIT):
        while not reached():
            await asyncio.sleep(0.01)


def test_of_an_asynchronous_engine(files):
    async def last(made, number):
        async for output in made.generate(prompt(number), SAMPLING):
            found = output
        return found

    async def run():
        options = {"executor": "echo", "max_num_seqs": 1, "max_queued_requests": 2}
        made = AsyncEngine(MODEL, in_process=True, plugins=fake_plugins(), **options)
        async with made:
            assert (await last(made, 0)).finished
            assert files() == 0
            await made.pause()
            waiting = [asyncio.create_task(last(made, number)) for number in (1, 2)]
            await _until(lambda: files() == 2 and made.last_stats.waiting == 2)
            with pytest.raises(OverloadedError) as refused:
                await last(made, 3)
            assert files() == 2
            waiting[0].cancel()
            await asyncio.wait(waiting[:1])
            assert files() == 1
        with pytest.raises(EngineDeadError) as ended:
            await waiting[1]
        assert files() == 0
        return refused, ended

    kept = asyncio.run(run())
    assert len(kept) == 2


def test_of_an_engine_in_this_process(files):
    with LLM(MODEL, plugins=fake_plugins(), executor="echo", max_queued_requests=1) as llm:
        with pytest.raises(OverloadedError) as refused:
            llm.generate([prompt(1), prompt(2)], SAMPLING)
        assert files() == 0
        stream = llm.stream(prompt(3), SAMPLING)
        next(stream)
        assert files() == 1
        stream.close()
        assert files() == 0
        llm.close()
        with pytest.raises(EngineDeadError) as closed:
            llm.generate(prompt(4), SAMPLING)
        assert files() == 0
        assert not isinstance((refused.value, closed.value), InputError)
