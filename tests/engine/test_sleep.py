"""`LLM` and `AsyncEngine` that give their memory back for a while; the echo model."""

from __future__ import annotations

import asyncio

import pytest

from framework import LLM, SamplingParams
from framework.contracts.sampling import OutputKind
from framework.engine.async_engine import AsyncEngine
from framework.errors import InputError, OverloadedError
from framework.testing.fake_model import MODEL, fake_plugins

ALL = SamplingParams(max_tokens=None)
OPTIONS = {"plugins": fake_plugins(), "executor": "echo"}
WAIT = 60


def text_of(llm, prompt):
    return llm.generate(prompt, ALL, use_tqdm=False)[0].outputs[0].text


def test_an_llm_that_slept_answers_as_before():
    with LLM(MODEL, **OPTIONS) as llm:
        assert (text_of(llm, "before"), llm.is_sleeping) == ("before", False)
        for level in (1, 2):
            llm.sleep(level)
            assert llm.is_sleeping
            with pytest.raises(OverloadedError, match="wake_up"):
                text_of(llm, "asleep")
            llm.wake_up()
            llm.wake_up()
            assert (text_of(llm, "after"), llm.is_sleeping) == ("after", False)
        with pytest.raises(InputError, match="level"):
            llm.sleep(3)
        llm.check_integrity()


def test_a_stream_goes_on_after_sleep():
    with LLM(MODEL, **OPTIONS) as llm:
        stream = llm.stream("word by word", ALL)
        texts = [next(stream).outputs[0].text]
        llm.sleep()
        with pytest.raises(OverloadedError):
            text_of(llm, "another")
        llm.wake_up()
        texts += [output.outputs[0].text for output in stream]
        assert "".join(texts) == "word by word"
        llm.check_integrity()


async def collect(stream, texts):
    async for output in stream:
        texts.append(output.outputs[0].text)


@pytest.mark.parametrize("in_process", [True, False], ids=["thread", "process"])
def test_requests_wait_for_an_engine_that_sleeps(in_process):
    async def run():
        sampling = ALL.replace(output_kind=OutputKind.DELTA)
        async with AsyncEngine(MODEL, in_process=in_process, **OPTIONS) as engine:
            stream = engine.generate("before the sleep", sampling)
            begun = [(await anext(stream)).outputs[0].text]
            await engine.sleep(2)
            assert await engine.is_sleeping()
            late: list[str] = []
            tasks = [
                asyncio.create_task(collect(stream, begun)),
                asyncio.create_task(collect(engine.generate("in the sleep", sampling), late)),
            ]
            while (await engine.stats()).waiting < 1:
                await asyncio.sleep(0.01)
            await engine.resume()
            with pytest.raises(InputError, match="level"):
                await engine.sleep(7)
            assert late == []
            await engine.wake_up()
            await asyncio.wait_for(asyncio.gather(*tasks), WAIT)
            assert ("".join(begun), "".join(late)) == ("before the sleep", "in the sleep")
            assert not await engine.is_sleeping()
            await engine.check_integrity()

    asyncio.run(run())


def test_who_waits_is_served_when_an_engine_that_sleeps_is_drained():
    async def run():
        engine = AsyncEngine(MODEL, in_process=True, **OPTIONS)
        await engine.start()
        await engine.sleep()
        texts: list[str] = []
        task = asyncio.create_task(collect(engine.generate("accepted", ALL), texts))
        while not (await engine.stats()).waiting:
            await asyncio.sleep(0.01)
        await asyncio.wait_for(engine.shutdown(drain=True), WAIT)
        await task
        assert texts[-1] == "accepted"

    asyncio.run(run())


def test_an_engine_ends_in_its_sleep():
    async def run():
        engine = AsyncEngine(MODEL, in_process=True, **OPTIONS)
        await engine.start()
        await engine.sleep(2)
        await asyncio.wait_for(engine.shutdown(), WAIT)

    asyncio.run(run())


def test_settings_hide_what_may_be_secret():
    async def run():
        options = {**OPTIONS, "token": "hf_s3cret", "plugin_options": {"executor.echo.delay": 0.0}}
        async with AsyncEngine(MODEL, in_process=True, **options) as engine:
            return engine.settings()

    found = asyncio.run(run())
    assert found["model.model"] == MODEL
    assert found["scheduler.max_num_seqs"] > 0
    assert found["model.token"] == found["plugin.plugin_options"] == "**********"
    assert "s3cret" not in str(found)
