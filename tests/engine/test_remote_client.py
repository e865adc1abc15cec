"""The front end's end of a link, without a core at the other one."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

from framework.contracts.messages import EngineOutputs
from framework.contracts.step import Logprobs
from framework.engine.remote.client import AT_ONCE, AsyncCore
from framework.engine.remote.messages import Beat, Outputs

LIMIT = 60
MANY = 1000


def step(number, tokens=0, scores=0):
    """A step's outputs; scores: log-probabilities of each token."""
    ids = np.zeros(tokens * scores, np.int32)
    logprobs = Logprobs(
        offsets=np.arange(tokens + 1, dtype=np.int32) * scores,
        ids=ids,
        values=ids.astype(np.float32),
        ranks=np.ones(tokens, np.int32),
    )
    return Outputs(
        outputs=EngineOutputs(
            step_id=number,
            token_ids=np.zeros(tokens, np.int32),
            logprobs=logprobs if scores else None,
        )
    )


class Link:
    """Brings messages, one at a time, and ends."""

    pid = None

    def __init__(self, messages):
        self._messages, self.ended = iter(messages), threading.Event()

    def receive(self, timeout):
        try:
            return [next(self._messages)]
        except StopIteration:
            self.ended.set()
            raise EOFError("that was all") from None

    def send(self, request):
        raise AssertionError("nobody asks")


def test_a_loop_that_is_busy_is_woken_once_however_much_comes():
    """Its pipe holds a few hundred bytes, and a signal that finds it full is lost."""

    async def run():
        loop, woken = asyncio.get_running_loop(), []
        wake = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda *given: woken.append(given) or wake(*given)
        link, dead = Link([Beat()] * MANY), asyncio.Event()
        core = AsyncCore(link, on_outputs=lambda _: None, on_death=lambda _: dead.set())
        assert link.ended.wait(LIMIT)  # the loop has no turn meanwhile
        await asyncio.wait_for(dead.wait(), LIMIT)
        assert core.signs == MANY
        assert len(woken) <= 2, "the end may be told after the loop's turn has begun"

    asyncio.run(run())


def test_others_have_their_turns_however_much_comes():
    async def run():
        heard, then, dead = [], [], asyncio.Event()
        link = Link(step(number) for number in range(MANY))
        AsyncCore(link, on_outputs=heard.append, on_death=lambda _: dead.set())
        assert link.ended.wait(LIMIT)
        asyncio.get_running_loop().call_soon(lambda: then.append(len(heard)))
        await asyncio.wait_for(dead.wait(), LIMIT)
        assert [one.step_id for one in heard] == list(range(MANY))
        assert then[0] < MANY

    asyncio.run(run())


@pytest.mark.parametrize("scores", [0, 30])
def test_many_rows_are_as_much_as_many_messages(scores):
    """Each token costs the loop as much as a message does, and each log-probability."""

    async def run():
        heard, then, dead = [], [], asyncio.Event()
        tokens = AT_ONCE // (4 * (1 + scores))
        link = Link(step(number, tokens, scores) for number in range(64))
        AsyncCore(link, on_outputs=heard.append, on_death=lambda _: dead.set())
        assert link.ended.wait(LIMIT)
        asyncio.get_running_loop().call_soon(lambda: then.append(len(heard)))
        await asyncio.wait_for(dead.wait(), LIMIT)
        assert len(heard) == 64
        assert then[0] <= 5

    asyncio.run(run())


def test_what_comes_behind_a_message_whose_handling_fails_is_heard():
    async def run():
        told, dead, heard = [], asyncio.Event(), []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context["exception"]))

        def fails_once(outputs):
            heard.append(outputs)
            if len(heard) == 1:
                raise LookupError("a fault of ours")

        link = Link(step(number) for number in range(3))
        AsyncCore(link, on_outputs=fails_once, on_death=lambda _: dead.set())
        assert link.ended.wait(LIMIT)
        await asyncio.wait_for(dead.wait(), LIMIT)
        assert [one.step_id for one in heard] == [0, 1, 2]
        assert [type(error) for error in told] == [LookupError]

    asyncio.run(run())
