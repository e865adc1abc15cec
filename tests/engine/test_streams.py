"""Outputs that wait for somebody who is slow to take them."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc

import pytest

from framework.contracts.sampling import OutputKind
from framework.engine.bell import Bell
from framework.engine.outputs import CompletionOutput, Logprob, RequestOutput
from framework.engine.streams import MOST_WAITING, OutputStream

COUNT = MOST_WAITING + 1000


def output(*outputs, finished=False, prompt_logprobs=None):
    return RequestOutput(
        request_id="x",
        prompt=None,
        prompt_token_ids=[1],
        prompt_logprobs=prompt_logprobs,
        outputs=list(outputs),
        finished=finished,
        num_cached_tokens=3,
    )


def delta(index, number, **fields):
    return CompletionOutput(index=index, text=f"{number} ", token_ids=[number], **fields)


def taken(stream):
    """All outputs up to the finished one."""

    async def run():
        found = [await stream.take()]
        while not found[-1].finished:
            found.append(await stream.take())
        return found

    return asyncio.run(run())


def test_what_waits_behind_the_first_is_put_together_and_nothing_is_lost():
    stream = OutputStream(OutputKind.DELTA)
    for number in range(COUNT):
        entry = {number: Logprob(-1.0, 1, "", b"")}
        last = number == COUNT - 1
        scored = [None] if number == MOST_WAITING + 5 else None
        one = delta(0, number, logprobs=[entry], finish_reason="stop" if last else None)
        outputs = [one, delta(1, number)] if number % 2 else [one]
        stream.put(output(*outputs, finished=last, prompt_logprobs=scored))
    found = taken(stream)
    assert len(found) == MOST_WAITING + 1
    assert {len(one.outputs[0].token_ids) for one in found[:-1]} == {1}
    assert (found[-1].prompt_logprobs, found[-1].num_cached_tokens) == ([None], 3)
    assert [one.index for one in found[-1].outputs] == [0, 1]
    first = [one.outputs[0] for one in found]
    ids = [token for one in first for token in one.token_ids]
    assert ids == [token for one in first for at in one.logprobs for token in at]
    assert ids == list(range(COUNT))
    assert "".join(one.text for one in first) == "".join(f"{number} " for number in range(COUNT))
    assert first[-1].finish_reason == "stop"
    second = [c for one in found for c in one.outputs if c.index == 1]
    assert [token for one in second for token in one.token_ids] == list(range(1, COUNT, 2))
    assert {one.logprobs for one in second} == {None}


def test_who_reads_again_gets_single_outputs_again():
    stream = OutputStream(OutputKind.DELTA)
    for number in range(COUNT):
        stream.put(output(delta(0, number)))

    async def run():
        for _ in range(MOST_WAITING + 1):
            await stream.take()
        stream.put(output(delta(0, 7), finished=True))
        return await stream.take()

    assert asyncio.run(run()).outputs[0].token_ids == [7]


@pytest.mark.parametrize("kind", [OutputKind.CUMULATIVE, OutputKind.FINAL_ONLY])
def test_of_whole_outputs_the_last_tells_all(kind):
    stream = OutputStream(kind)
    for number in range(COUNT):
        one = CompletionOutput(index=0, text="a" * number, token_ids=[5] * number)
        stream.put(output(one, finished=number == COUNT - 1))
    found = taken(stream)
    assert len(found) == MOST_WAITING + 1
    assert found[-1].outputs[0].text == "a" * (COUNT - 1)
    assert found[-1].outputs[0].token_ids == [5] * (COUNT - 1)


def test_a_failure_comes_after_all_that_waits():
    stream = OutputStream(OutputKind.DELTA)
    for number in range(COUNT):
        stream.put(output(delta(0, number)))
    stream.fail(RuntimeError("gone"))

    async def run():
        found = [await stream.take() for _ in range(MOST_WAITING + 1)]
        with pytest.raises(RuntimeError, match="gone"):
            await stream.take()
        return sum(len(one.outputs[0].token_ids) for one in found)

    assert asyncio.run(run()) == COUNT


def test_nobody_who_takes_costs_some_bytes_for_each_token():
    stream, count = OutputStream(OutputKind.DELTA), 20_000
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(MOST_WAITING):
            stream.put(output(delta(0, number)))
        before = tracemalloc.get_traced_memory()[0]
        for number in range(count):
            stream.put(output(CompletionOutput(index=0, text="abcd", token_ids=[number])))
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 48 * count


def test_a_bell_wakes_who_waits_and_forgets_rings_that_nobody_heard():
    async def run():
        bell = Bell()
        bell.ring()
        waiting = asyncio.create_task(bell.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        bell.ring()
        bell.ring()
        await waiting
        cancelled = asyncio.create_task(bell.wait())
        await asyncio.sleep(0)
        cancelled.cancel()
        bell.ring()
        assert await asyncio.gather(cancelled, return_exceptions=True) != [None]
        last = asyncio.create_task(bell.wait())
        await asyncio.sleep(0)
        bell.ring()
        await last

    asyncio.run(run())
