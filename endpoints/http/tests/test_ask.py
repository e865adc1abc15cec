"""Several prompts in one stream, and a client that takes nothing of it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from framework.contracts.sampling import SamplingParams
from framework.engine.outputs import CompletionOutput
from framework.engine.request_options import RequestOptions
from framework.errors import InputError
from framework_http.openai import ask


class Service:
    """Its prompts have outputs without end, or an error.  made: outputs so far."""

    made = closed = 0

    async def generate(self, prompt, sampling, options):
        try:
            while prompt != "bad":
                self.made += 1
                one = CompletionOutput(index=0, text="a", token_ids=[1])
                yield SimpleNamespace(
                    outputs=[one], prompt_token_ids=[1], num_cached_tokens=0, finished=False
                )
                await asyncio.sleep(0)
            raise InputError("it is bad")
        finally:
            self.closed += 1


async def turns(number):
    for _ in range(number):
        await asyncio.sleep(0)


async def slowly(parts):
    async for _ in parts:
        await turns(3)


def test_outputs_that_nobody_takes_wait_in_the_engine():
    service, prompts = Service(), ["a"] * 5

    async def run():
        parts = ask.parts(service, prompts, SamplingParams(), RequestOptions())
        await anext(parts)
        await turns(2 * ask.MOST_WAITING)
        waiting = service.made
        await turns(2 * ask.MOST_WAITING)
        assert service.made == waiting <= ask.MOST_WAITING + len(prompts) + 1
        seen = {(await anext(parts))[0] for _ in range(4 * ask.MOST_WAITING)}
        assert seen == set(range(len(prompts)))  # all go on once it is read
        await parts.aclose()
        assert service.closed == len(prompts)

    asyncio.run(run())


def test_an_error_of_one_comes_behind_what_waits_and_ends_all():
    service = Service()

    async def run():
        parts = ask.parts(service, ["a", "a", "bad"], SamplingParams(), RequestOptions())
        with pytest.raises(InputError, match="it is bad"):
            await slowly(parts)
        assert service.closed == 3

    asyncio.run(run())
