"""The front end's end of a link, without a core at the other one."""

from __future__ import annotations

import asyncio
import threading

from framework.engine.remote.client import AsyncCore
from framework.engine.remote.messages import Beat, Outputs

LIMIT = 60
MANY = 1000


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
        link = Link([Outputs(outputs=number) for number in range(MANY)])
        AsyncCore(link, on_outputs=heard.append, on_death=lambda _: dead.set())
        assert link.ended.wait(LIMIT)
        asyncio.get_running_loop().call_soon(lambda: then.append(len(heard)))
        await asyncio.wait_for(dead.wait(), LIMIT)
        assert heard == list(range(MANY))
        assert then[0] < MANY

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

        link = Link([Outputs(outputs=number) for number in range(3)])
        AsyncCore(link, on_outputs=fails_once, on_death=lambda _: dead.set())
        assert link.ended.wait(LIMIT)
        await asyncio.wait_for(dead.wait(), LIMIT)
        assert heard == [0, 1, 2]
        assert [type(error) for error in told] == [LookupError]

    asyncio.run(run())
