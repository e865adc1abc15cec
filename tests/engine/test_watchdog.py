"""A core that has not ended and does not work."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from framework.engine.async_engine import AsyncEngine
from framework.engine.remote.pulse import Heart, Pulse
from framework.engine.watchdog import SILENCE, Watchdog
from framework.errors import EngineDeadError, EngineRestartingError
from framework.testing.fake_model import MODEL, fake_plugins
from tests.engine.cores import LIMIT, healthy, text_of, until
from tests.engine.troubled import HANGS, troubled_plugin


def looks(dog, *signs_and_busy):
    return [dog.look(signs, busy) for signs, busy in signs_and_busy]


def test_a_core_that_gives_signs_and_ends_its_steps_is_well():
    dog = Watchdog(1.0, 10.0)
    assert looks(dog, *((k, float(k % 10)) for k in range(200))) == [None] * 200


def test_silence_counts_in_looks_from_the_last_sign_on():
    dog = Watchdog(1.0, None)
    well = looks(dog, (1, 0.0), *[(2, 0.0)] * (1 + int(SILENCE)))
    assert well == [None] * len(well)
    error = dog.look(2, 0.0)
    assert "no sign of life" in str(error)
    assert f"none for {SILENCE + 1:.0f} s" in str(error)
    assert Watchdog(1.0, None).look(1, 1e9) is None, "a step may take any time"


def test_a_step_that_takes_too_long_is_named_with_the_option():
    dog = Watchdog(1.0, 10.0)
    assert looks(dog, (1, 9.0), (2, 10.0)) == [None, None]
    assert "step_timeout, 10 s" in str(dog.look(3, 11.0))


def test_a_heart_counts_the_beats_of_one_step():
    pulse = Pulse()
    heart = Heart(pulse, 1.0)
    assert [heart.beat().busy for _ in range(2)] == [0.0, 0.0]
    pulse.begin()
    assert [heart.beat().busy for _ in range(3)] == [0.0, 1.0, 2.0]
    pulse.end()
    pulse.begin()  # between two beats: it is another step all the same
    assert [heart.beat().busy for _ in range(2)] == [0.0, 1.0]
    pulse.end()
    assert heart.beat().busy == 0.0


def engine(*, hung="", gate="", locks=False, **options):
    plugins = {**fake_plugins(), **troubled_plugin()}
    troubles = {"hung": str(hung), "gate": str(gate), "locks": locks}
    chosen = {f"executor.troubled.{name}": value for name, value in troubles.items()}
    return AsyncEngine(
        MODEL, plugins=plugins, plugin_options=chosen, executor="troubled", **options
    )


def test_a_core_that_hangs_in_a_step_is_ended_and_another_one_serves(tmp_path):
    """Two beats, which take their time."""
    gate = tmp_path / "gate"

    async def run():
        async with engine(step_timeout=0.5, on_core_death="restart", gate=gate) as made:
            gate.touch()
            first = made.core_pid
            with pytest.raises(EngineDeadError, match=r"step_timeout, 0\.5 s"):
                await asyncio.wait_for(text_of(made, HANGS), LIMIT)
            with pytest.raises(EngineRestartingError, match="started anew"):
                made.check_health()
            gate.unlink()
            await until(lambda: healthy(made))
            with pytest.raises(ProcessLookupError):
                os.kill(first, 0)
            assert await text_of(made, "after") == "after"

    asyncio.run(run())


def test_an_engine_whose_core_hangs_can_be_shut_down(tmp_path, monkeypatch):
    monkeypatch.setattr("framework.engine.remote.client.KILL_AFTER", 0.1)

    async def run():
        made = engine(step_timeout=None, hung=tmp_path / "hung")
        await made.start()
        hung = asyncio.create_task(text_of(made, HANGS))
        await until((tmp_path / "hung").exists)
        await made.shutdown()
        with pytest.raises(EngineDeadError, match="closed"):
            await hung
        with pytest.raises(ProcessLookupError):
            os.kill(made.core_pid, 0)

    asyncio.run(run())


def test_a_core_that_hangs_is_drained_no_longer_than_a_step_may_take(tmp_path):
    async def run():
        made = engine(step_timeout=0.5, hung=tmp_path / "hung")
        await made.start()
        hung = asyncio.create_task(text_of(made, HANGS))
        await until((tmp_path / "hung").exists)
        await asyncio.wait_for(made.shutdown(drain=True), LIMIT)
        with pytest.raises(EngineDeadError):
            await hung

    asyncio.run(run())


FRONT = """
import asyncio, os
from tests.engine.cores import text_of, until
from tests.engine.test_watchdog import HANGS, engine

async def run():
    made = engine(hung="hung", locks=True)
    await made.start()
    print(made.core_pid, flush=True)
    hung = asyncio.create_task(text_of(made, HANGS))
    await until(lambda: os.path.exists("hung"))
    os.kill(os.getpid(), 9)

asyncio.run(run())
"""


def test_a_core_that_hangs_for_good_ends_with_its_front_end(tmp_path):
    """It holds the lock that its own threads would need to look for the front end."""
    found = subprocess.run(
        [sys.executable, "-c", FRONT],
        stdout=subprocess.PIPE,
        text=True,
        timeout=LIMIT,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert found.returncode == -signal.SIGKILL
    core = int(found.stdout)
    try:
        asyncio.run(until(lambda: not works(core)))
    except TimeoutError:
        os.kill(core, signal.SIGKILL)
        raise


def works(pid):
    """Whether it runs; one that has ended may stay until somebody asks how."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def ended(pid):
    """Wait until the process has ended; nobody else of this process has a turn meanwhile."""
    with suppress(ChildProcessError):  # somebody has asked for its exit code already
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


@pytest.mark.skipif(not hasattr(os, "waitid"), reason="waits for a process without reaping it")
def test_no_core_that_has_ended_is_healthy():
    """Not even before those who wait were told."""

    async def run():
        async with engine() as made:
            made.check_health()
            os.kill(made.core_pid, signal.SIGKILL)
            ended(made.core_pid)
            with pytest.raises(EngineDeadError, match="SIGKILL"):
                made.check_health()

    asyncio.run(run())


@pytest.mark.skipif(not hasattr(os, "waitid"), reason="waits for a process without reaping it")
def test_while_another_core_is_started_the_engine_says_so(tmp_path):
    """From the end of the first one to the start of the second, however long that takes."""
    gate = tmp_path / "gate"

    async def run():
        async with engine(on_core_death="restart", gate=gate) as made:
            gate.touch()
            os.kill(made.core_pid, signal.SIGKILL)
            ended(made.core_pid)
            with pytest.raises(EngineRestartingError, match="SIGKILL"):
                made.check_health()
            with pytest.raises(EngineDeadError):
                await text_of(made, "too early")
            assert not healthy(made)
            gate.unlink()
            await until(lambda: healthy(made))
            assert await text_of(made, "after") == "after"

    asyncio.run(run())
