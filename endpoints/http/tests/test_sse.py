"""Streams of server-sent events, without a server."""

from __future__ import annotations

import asyncio

import pytest

from framework.errors import FrameworkError, InputError
from framework_http import sse


async def read(response, most=None, heard=None):
    """What a client of the response gets, up to `most` pieces.  heard: an event for the first."""
    got, done = [], asyncio.Event()

    async def receive():
        await done.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        if message.get("body"):
            got.append(message["body"].decode())
            if heard is not None:
                heard.set()
            if most is not None and len(got) == most:
                done.set()

    # 2.4 of ASGI: who goes away shows in `send`; before, in `receive`.
    await response({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send)
    return got


class Client:
    """As much of a request as a stream asks for.  stays: seconds until it goes away."""

    def __init__(self, stays=None):
        self.stays = stays

    async def receive(self):
        if self.stays is None:
            await asyncio.Event().wait()
        await asyncio.sleep(self.stays)
        return {"type": "http.disconnect"}


STAYS = Client()


async def counting(stop, error=None):
    for number in range(stop):
        yield {"number": number}
    if error is not None:
        raise error


def test_events_come_in_order_and_end():
    async def scene():
        return await read(await sse.stream(counting(2), STAYS))

    assert "".join(asyncio.run(scene())) == (
        'data: {"number":0}\n\ndata: {"number":1}\n\ndata: [DONE]\n\n'
    )


def test_events_that_came_while_the_client_was_slow_are_one_piece():
    async def scene():
        response = await sse.stream(counting(3), STAYS)
        await asyncio.sleep(0)  # all three are there
        return await read(response)

    pieces = asyncio.run(scene())
    assert len(pieces) < 4
    assert "".join(pieces).count("data: ") == 4


def test_an_error_before_the_first_event_is_raised():
    async def scene():
        await sse.stream(counting(0, InputError("no")), STAYS)

    with pytest.raises(InputError, match="no"):
        asyncio.run(scene())


def test_a_later_error_is_an_event_and_the_stream_ends():
    async def scene():
        return await read(await sse.stream(counting(1, FrameworkError("broke")), STAYS))

    _, error, end = asyncio.run(scene())
    assert '"message":"broke"' in error
    assert end == sse.DONE.decode()


def test_silence_is_filled_before_and_between_events():
    async def scene():
        heard = asyncio.Event()

        async def slow():
            await heard.wait()
            yield {"late": True}

        return await read(await sse.stream(slow(), STAYS, keep_alive=0.001), heard=heard)

    *silence, event, end = asyncio.run(scene())
    assert silence
    assert set(silence) == {": keep-alive\n\n"}
    assert (event, end) == ('data: {"late":true}\n\n', sse.DONE.decode())


def test_silence_is_filled_each_time_and_no_timer_is_left():
    class Pieces:
        count = 0

        def set(self):
            self.count += 1

    async def scene():
        heard = Pieces()

        async def slow():
            for number in range(3):
                yield {"number": number}
                heard.count = 0
                while heard.count < 2:  # the event, and silence
                    await asyncio.sleep(0)

        response = await sse.stream(slow(), STAYS, keep_alive=0.001)
        pieces = await read(response, heard=heard)
        timer = response._pump._timer
        assert timer is None or timer.cancelled()
        return pieces

    text = "".join(asyncio.run(scene()))
    silence = ": keep-alive\n\n"
    for number in range(3):
        _, text = text.split(f'data: {{"number":{number}}}\n\n')
        assert text.startswith(silence)
        text = text.removeprefix(silence)


@pytest.mark.parametrize("most", [1, 3])
def test_events_are_closed_when_the_client_goes_away(most):
    async def scene():
        closed = asyncio.Event()

        async def endless():
            try:
                for _ in range(most):
                    yield {}
                await asyncio.Event().wait()
            finally:
                closed.set()

        # What comes while the client reads is one piece; silence makes the others.
        await read(await sse.stream(endless(), STAYS, keep_alive=0.01), most)
        await asyncio.wait_for(closed.wait(), 30)

    asyncio.run(scene())


def test_an_event_with_a_name_says_it():
    assert sse.named({"type": "a.b"}) == b'event: a.b\ndata: {"type":"a.b"}\n\n'


def test_a_client_that_goes_away_before_the_first_event_ends_them():
    async def scene():
        closed = asyncio.Event()

        async def endless():
            try:
                await asyncio.Event().wait()
                yield {}
            finally:
                closed.set()

        response = await sse.stream(endless(), Client(stays=0.01), keep_alive=1000)
        await asyncio.wait_for(closed.wait(), 30)
        return response.status_code

    assert asyncio.run(scene()) == 499
