"""What becomes of a server's engine when its core dies."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from framework.engine.async_engine import AsyncEngine
from framework.engine.front_end import FrontEnd
from framework.engine.keeper import Allowance, CoreKeeper
from framework.errors import EngineDeadError, EngineRestartingError
from framework.testing.fake_model import MODEL, fake_plugins
from tests.engine.cores import LIMIT, healthy, text_of, until
from tests.engine.troubled import troubled_plugin


def engine(**options):
    return AsyncEngine(
        MODEL, plugins=fake_plugins(), executor="echo", on_core_death="restart", **options
    )


async def kill(engine):
    """The core dies with a request in it; whoever waits for that is told."""
    await engine.pause()
    waiting = asyncio.create_task(text_of(engine, "never answered"))
    await until(lambda: engine.snapshot().value("num_requests_waiting") == 1)
    os.kill(engine.core_pid, signal.SIGKILL)
    with pytest.raises(EngineDeadError, match="SIGKILL"):
        await asyncio.wait_for(waiting, LIMIT)


@pytest.fixture
def may_begin(monkeypatch):
    """An event that a core which is begun anew waits for."""
    begin, gate = CoreKeeper._begin, asyncio.Event()

    async def held(keeper):
        if keeper._flight is not None:
            await gate.wait()
        return await begin(keeper)

    monkeypatch.setattr(CoreKeeper, "_begin", held)
    return gate


def test_a_core_that_was_killed_is_started_anew(may_begin):
    async def run():
        async with engine() as made:
            assert await text_of(made, "before") == "before"
            first = made.core_pid
            hits = made.snapshot().value("prefix_cache_queries")
            await kill(made)
            with pytest.raises(EngineRestartingError, match="started anew"):
                made.check_health()
            with pytest.raises(EngineRestartingError):
                await text_of(made, "too early")
            assert made.snapshot().value("num_requests_waiting") == 0
            may_begin.set()
            await until(lambda: healthy(made))
            assert made.core_pid != first
            assert await text_of(made, "after") == "after"
            snapshot = made.snapshot()
            assert snapshot.value("core_restarts") == 1
            assert snapshot.value("request_success", finished_reason="error") == 1
            assert snapshot.value("prefix_cache_queries") > hits > 0
            await made.check_integrity()

    asyncio.run(run())


def test_a_core_that_dies_too_often_is_not_started_anew():
    async def run():
        async with engine(max_core_restarts=1) as made:
            await kill(made)
            await until(lambda: healthy(made))
            await kill(made)

            def given_up():
                try:
                    return healthy(made) and False
                except EngineDeadError:
                    return True

            await until(given_up)
            with pytest.raises(EngineDeadError, match="SIGKILL"):
                await text_of(made, "late")

    asyncio.run(run())


def test_an_engine_can_be_shut_down_while_its_core_is_started_anew(may_begin):
    async def run():
        made = engine()
        await made.start()
        await kill(made)
        await made.shutdown()
        with pytest.raises(EngineDeadError, match="closed"):
            made.check_health()
        assert made.snapshot().value("core_restarts") == 0

    asyncio.run(run())


def test_a_core_that_dies_as_soon_as_it_is_started_is_replaced_too(monkeypatch):
    begin, begun = CoreKeeper._begin, []

    async def fragile(keeper):
        flight, started = await begin(keeper)
        begun.append(flight)
        if len(begun) == 2:
            os.kill(flight.core.pid, signal.SIGKILL)
            await until(lambda: flight.core.dead is not None)
        return flight, started

    monkeypatch.setattr(CoreKeeper, "_begin", fragile)

    async def run():
        async with engine() as made:
            await kill(made)
            await until(lambda: healthy(made))
            assert len(begun) == 3
            assert await text_of(made, "after") == "after"

    asyncio.run(run())


def test_a_silent_core_is_replaced(monkeypatch):
    async def run():
        async with engine() as made:
            first = made.core_pid
            # It is stopped, not ended, so that nobody sees an end.
            os.kill(first, signal.SIGSTOP)
            monkeypatch.setattr("framework.engine.watchdog.SILENCE", 1.0)
            await until(lambda: not healthy(made))
            monkeypatch.undo()
            await until(lambda: healthy(made))
            with pytest.raises(ProcessLookupError):
                os.kill(first, 0)
            assert await text_of(made, "after") == "after"

    asyncio.run(run())


@pytest.fixture
def hanging(tmp_path):
    """Options of an engine whose cores cannot start, and the file that is in their way."""
    gate = tmp_path / "gate"
    gate.touch()
    options = {"executor.troubled.gate": str(gate)}
    plugins = {**fake_plugins(), **troubled_plugin()}
    return {"executor": "troubled", "plugin_options": options, "plugins": plugins}, gate


def test_a_core_that_hangs_while_it_loads_is_ended(hanging, monkeypatch):
    links = []

    def link(front, in_process):
        links.append(make(front, in_process))
        return links[-1]

    make = FrontEnd.link
    monkeypatch.setattr(FrontEnd, "link", link)

    async def run():
        with pytest.raises(EngineDeadError, match=r"hangs while .*\n.*load_timeout, 0.1 s"):
            await AsyncEngine(MODEL, load_timeout=0.1, **hanging[0]).start()
        with pytest.raises(ProcessLookupError):
            os.kill(links[0].pid, 0)

    asyncio.run(run())


@pytest.mark.long  # two more processes; what ends the core is the same as above
def test_a_core_that_hangs_when_it_is_started_anew_is_ended_and_tried_again(hanging, caplog):
    options, gate = hanging
    gate.unlink()

    async def run():
        more = {"on_core_death": "restart", "max_core_restarts": 1000}
        async with AsyncEngine(MODEL, **more, **options) as made:
            gate.touch()
            made._keeper._load_timeout = 0.1
            await kill(made)
            await until(lambda: "the engine core hangs while" in caplog.text)
            made._keeper._load_timeout = None
            gate.unlink()
            await until(lambda: healthy(made))
            assert await text_of(made, "after") == "after"

    asyncio.run(run())


def test_an_allowance_counts_within_its_window():
    now = 0.0
    allowance = Allowance(2, 10.0, clock=lambda: now)
    assert [allowance.take() for _ in range(3)] == [True, True, False]
    now = 10.0
    assert [allowance.take() for _ in range(3)] == [True, True, False]
