"""Many callers on one loop; the core in a process of its own, or in a thread."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest

from framework.contracts.sampling import OutputKind, SamplingParams
from framework.engine.async_engine import AsyncEngine
from framework.engine.request_options import RequestOptions
from framework.errors import ConfigError, EngineDeadError, InputError, OverloadedError
from framework.testing.fake_model import MODEL, fake_plugins

DELTA = SamplingParams(max_tokens=64, output_kind=OutputKind.DELTA)


def engine(in_process, **options):
    return AsyncEngine(
        MODEL, in_process=in_process, plugins=fake_plugins(), executor="echo", **options
    )


@pytest.fixture(params=[True, False], ids=["thread", "process"])
def in_process(request):
    return request.param


async def text_of(engine, prompt, sampling=DELTA, options=None):
    parts = []
    async for output in engine.generate(prompt, sampling, options):
        parts.append(output.outputs[0].text)
    return "".join(parts)


def test_many_callers_get_their_own_answers_and_the_pool_is_as_before(in_process):
    async def run():
        async with engine(in_process, max_num_seqs=4) as made:
            prompts = [f"caller {k} asks " + "x" * k for k in range(12)]
            answers = await asyncio.gather(*(text_of(made, p) for p in prompts))
            assert answers == prompts
            await settled(made)
            await made.check_integrity()

    asyncio.run(run())


def test_closing_an_iterator_ends_its_request(in_process):
    async def run():
        async with engine(in_process) as made:
            stream = made.generate("a long answer " * 12, DELTA.replace(max_tokens=80))
            await anext(stream)
            await stream.aclose()
            assert await text_of(made, "next") == "next"
            await settled(made)

    asyncio.run(run())


def test_cancelling_who_waits_ends_the_request(in_process):
    async def run():
        async with engine(in_process) as made:
            await made.pause()
            task = asyncio.create_task(text_of(made, "never read"))
            await in_line(made, 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await made.resume()
            await settled(made)

    asyncio.run(run())


async def settled(made):
    """The core has let everything go."""
    await until(made, lambda s: (s.running, s.waiting, s.pages_used) == (0, 0, 0))


async def in_line(made, count):
    """The core has that many requests, none of which runs."""
    await until(made, lambda stats: stats.waiting == count)


async def until(made, condition):
    end = time.monotonic() + 60
    while not condition(stats := await made.stats()):
        assert time.monotonic() < end, stats
        await asyncio.sleep(0.01)


def test_abort_by_the_clients_id_gives_a_last_output(in_process):
    async def run():
        async with engine(in_process) as made:
            await made.pause()
            options = RequestOptions(request_id="mine")
            stream = made.generate("abc", DELTA, options)
            first = asyncio.create_task(anext(stream))
            await in_line(made, 1)
            assert made.abort("mine")
            assert not made.abort("another")
            output = await first
            assert output.request_id == "mine"
            assert output.finished
            assert output.outputs[0].finish_reason == "abort"

    asyncio.run(run())


def test_pause_and_resume_lose_no_token(in_process):
    async def run():
        async with engine(in_process) as made:
            prompt = "pause in the middle of this"
            parts = []
            async for output in made.generate(prompt, DELTA):
                parts.append(output.outputs[0].text)
                if len(parts) == 3:
                    await made.pause()
                    asyncio.get_running_loop().call_later(0.05, resume_later, made)
            assert "".join(parts) == prompt

    def resume_later(made):
        task = asyncio.ensure_future(made.resume())
        task.add_done_callback(lambda done: done.result())

    asyncio.run(run())


def test_what_is_wrong_with_a_request_is_told_before_it_runs_and_harms_nobody(in_process):
    async def run():
        async with engine(in_process) as made:
            with pytest.raises(InputError, match="empty"):
                await text_of(made, "")
            with pytest.raises(InputError, match="deadline"):
                RequestOptions(deadline=float("nan"))
            assert isinstance(RequestOptions(deadline=2**64).deadline, float)
            assert await text_of(made, "fine") == "fine"

    asyncio.run(run())


@pytest.mark.parametrize("name", ["logprobs", "prompt_logprobs"])
def test_an_operator_says_how_many_logprobs_a_request_may_ask_for(name):
    async def run():
        async with engine(True, max_num_seqs=2) as made:
            for wanted in (21, -1):
                with pytest.raises(InputError, match=f"{name} is invalid"):
                    await text_of(made, "a", SamplingParams(max_tokens=1, **{name: wanted}))
            assert await text_of(made, "a", SamplingParams(max_tokens=1, **{name: 20}))
        async with engine(True, max_num_seqs=2, max_logprobs=-1) as made:
            assert await text_of(made, "a", SamplingParams(max_tokens=1, **{name: -1}))

    asyncio.run(run())


def test_a_full_queue_refuses_and_the_others_go_on(in_process):
    async def run():
        async with engine(in_process, max_queued_requests=2) as made:
            await made.pause()
            tasks = [asyncio.create_task(text_of(made, f"request {k}")) for k in range(5)]
            while sum(task.done() for task in tasks) < 3:
                await asyncio.sleep(0.01)
            await made.resume()
            found = await asyncio.gather(*tasks, return_exceptions=True)
            refused = [error for error in found if isinstance(error, OverloadedError)]
            assert len(refused) == 3
            assert sorted(f for f in found if isinstance(f, str))[0].startswith("request")

    asyncio.run(run())


def test_several_outputs_of_one_prompt(in_process):
    async def run():
        async with engine(in_process) as made:
            sampling = DELTA.replace(n=3, output_kind=OutputKind.FINAL_ONLY)
            outputs = [output async for output in made.generate("abc", sampling)]
            assert [o.text for o in outputs[-1].outputs] == ["abc"] * 3

    asyncio.run(run())


def test_drain_serves_what_was_accepted_and_refuses_the_rest(in_process):
    async def run():
        made = engine(in_process)
        await made.start()
        await made.pause()
        task = asyncio.create_task(text_of(made, "accepted"))
        await in_line(made, 1)
        await made.shutdown(drain=True)
        assert await task == "accepted"
        with pytest.raises(EngineDeadError, match="closed"):
            await text_of(made, "late")

    asyncio.run(run())


def test_what_stops_the_start_is_told_as_it_is(in_process):
    async def run():
        made = engine(in_process, num_pages=2, max_model_len=4096)
        with pytest.raises(ConfigError):
            await made.start()
        await made.shutdown()

    asyncio.run(run())


def test_a_core_that_dies_ends_every_request_and_health_says_so():
    async def run():
        made = engine(False)
        await made.start()
        try:
            made.check_health()
            await made.pause()
            tasks = [asyncio.create_task(text_of(made, f"request {k}")) for k in range(3)]
            await in_line(made, 3)
            os.kill(made.core_pid, signal.SIGKILL)
            found = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
            assert all(isinstance(error, EngineDeadError) for error in found)
            assert "SIGKILL" in str(found[0])
            with pytest.raises(EngineDeadError):
                made.check_health()
            with pytest.raises(EngineDeadError):
                await text_of(made, "late")
        finally:
            await made.shutdown()

    asyncio.run(run())


def test_a_core_dies_with_its_front_end(tmp_path):
    """However the front end ends."""
    import subprocess
    import sys

    script = tmp_path / "front.py"
    script.write_text(
        "import asyncio, os\n"
        "from framework.engine.async_engine import AsyncEngine\n"
        "from framework.testing.fake_model import MODEL, fake_plugins\n"
        "async def run():\n"
        "    made = AsyncEngine(MODEL, plugins=fake_plugins(), executor='echo')\n"
        "    await made.start()\n"
        "    print(made.core_pid, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(run())\n"
    )
    path = os.pathsep.join(sys.path)
    found = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert found.stdout, found.stderr
    pid = int(found.stdout)
    for _ in range(600):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    raise AssertionError("the core outlived its front end")
