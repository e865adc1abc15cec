"""The same requests through an engine whose core has a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import numpy as np

from framework import PoolingParams, SamplingParams
from framework.core.random import derive_seed
from framework.engine.async_engine import AsyncEngine
from framework.engine.request_options import RequestOptions
from framework.errors import InputError
from tests.composition.acts import ADAPTERS, BESIDE, LOADED, SAID, Answer, answer_of, rounds

_WAIT = 300


class RemoteEngine:
    """An `AsyncEngine` with a loop of its own."""

    def __init__(self, **options: Any) -> None:
        self._runner = asyncio.Runner()
        self._engine = AsyncEngine(**options)
        try:
            self._runner.run(self._engine.start())
        except BaseException:
            self._runner.close()
            raise

    def close(self) -> None:
        self._runner.run(self._engine.shutdown())
        self._runner.close()

    def answers(
        self,
        prompts: Sequence[Sequence[int]],
        params: Sequence[SamplingParams],
        adapters: Sequence[str | None],
        acts: Sequence[str],
    ) -> list[Answer]:
        """One for each prompt.  Raises what the engine refuses."""
        for some in rounds(adapters) if "twice" in acts else [adapters]:
            made = self._runner.run(self._all(prompts, params, some, acts))
        return made

    async def _all(
        self,
        prompts: Sequence[Sequence[int]],
        params: Sequence[SamplingParams],
        adapters: Sequence[str | None],
        acts: Sequence[str],
    ) -> list[Answer]:
        engine = self._engine
        named = ADAPTERS if "adapters" in acts else ()
        adapted = [await _ended(await _begun(engine, name)) for name in named]
        alone = (await engine.encode(BESIDE)).embedding if "embed" in acts else None
        got: list[list[Any]] = [[] for _ in prompts]
        first = len(prompts) // 2 if "late" in acts else len(prompts)
        begun = asyncio.Event()

        async def one(index: int) -> None:
            options = RequestOptions(adapter=adapters[index])
            async for output in engine.generate(list(prompts[index]), params[index], options):
                got[index].append(output)
                begun.set()

        async with asyncio.timeout(_WAIT), asyncio.TaskGroup() as tasks:
            for index in range(first):
                tasks.create_task(one(index))
                await asyncio.sleep(0)
            beside = [tasks.create_task(_ACTS[act](engine, alone)) for act in acts if act in _ACTS]
            if adapted:
                beside.append(tasks.create_task(_come_and_go(engine, adapted)))
            if first < len(prompts):
                await begun.wait()
            for index in range(first, len(prompts)):
                tasks.create_task(one(index))
            del beside
        await engine.check_integrity()
        made = [answer_of(params[i], got[i]) for i in range(len(prompts))]
        for answer, asked, outputs in zip(made, params, got, strict=True):
            # A request without an id of its own goes by its number, from which a seed is made.
            number = int(outputs[-1].request_id)
            root = asked.seed if asked.seed is not None else derive_seed(0, number)
            answer.seeds = (root, *(derive_seed(root, index) for index in range(1, asked.n)))
        return made


async def _pause(engine: AsyncEngine, alone: Any) -> None:
    for _ in range(3):
        await engine.pause()
        before = (await engine.stats()).running
        await engine.resume()
        assert before >= 0


async def _sleep(engine: AsyncEngine, alone: Any) -> None:
    for level in (1, 2):
        await engine.sleep(level)
        assert await engine.is_sleeping()
        await engine.wake_up()


async def _abort(engine: AsyncEngine, alone: Any) -> None:
    params = SamplingParams(max_tokens=40, ignore_eos=True, seed=1, n=2)
    stream = engine.generate(BESIDE, params, RequestOptions(request_id="beside"))
    await anext(stream)
    assert engine.abort("beside")
    reasons = {one.finish_reason async for output in stream for one in output.outputs}
    assert "abort" in reasons or "length" in reasons


async def _embed(engine: AsyncEngine, alone: Any) -> None:
    for _ in range(2):
        found = await engine.encode(BESIDE, PoolingParams())
        np.testing.assert_allclose(found.embedding, alone, atol=1e-6)


async def _begun(engine: AsyncEngine, adapter: str) -> AsyncIterator[Any]:
    """What is said beside, from its second token on."""
    params = SAID.replace(output_kind="cumulative")
    stream = engine.generate(BESIDE, params, RequestOptions(adapter=adapter))
    await anext(stream)
    return stream


async def _ended(stream: AsyncIterator[Any]) -> list[int]:
    [*_, last] = [output async for output in stream]
    return list(last.outputs[0].token_ids)


async def _come_and_go(engine: AsyncEngine, alone: list[list[int]]) -> None:
    """As `Run.adapters`."""
    begun = []
    for name in ADAPTERS:
        while not await _load(engine, name):
            await asyncio.sleep(0.01)  # all places are taken
        begun.append(await _begun(engine, LOADED))
    await engine.unload_adapter(LOADED)
    assert [await _ended(one) for one in begun] == alone


async def _load(engine: AsyncEngine, name: str) -> bool:
    root = engine.config.adapters.lora_modules[name]
    try:
        await engine.load_adapter(LOADED, str(root), load_inplace=True)
    except InputError as error:
        if "make place" not in str(error):
            raise
        return False
    return True


_ACTS: Mapping[str, Any] = {"pause": _pause, "sleep": _sleep, "abort": _abort, "embed": _embed}
