"""Plugins of a served engine are loaded in the processes of their scopes and in no other."""

from __future__ import annotations

import asyncio

import pytest

from framework.contracts.participant import SchedulerParticipant
from framework.contracts.sampling import SamplingParams
from framework.engine.async_engine import AsyncEngine
from framework.plugins.kinds import Scope
from framework.plugins.records import State
from framework.testing.fake_model import MODEL, fake_plugins


class Reads(SchedulerParticipant):
    """Needs the tokenizer where the engine core runs, as grammars do."""

    def start(self, context):
        tokenizer, ends = context.load_tokenizer()
        assert tokenizer.decode([104, 105]) == "hi"
        assert ends >= set(tokenizer.eos_ids)


@pytest.mark.parametrize("in_process", [False, True])
def test_a_front_end_loads_what_runs_in_front_ends(in_process):
    """With the core in a process of its own, executor and policy are loaded only there."""

    async def loaded():
        engine = AsyncEngine(MODEL, in_process=in_process, plugins=fake_plugins(), executor="echo")
        await engine.start()
        try:
            records = engine.registry.records()
            used = [r for r in records if r.state in (State.LOADED, State.USED)]
            return used, [
                r for r in used if Scope.FRONT_END not in r.scopes(engine.registry.kind(r.kind))
            ]
        finally:
            await engine.shutdown()

    used, foreign = asyncio.run(loaded())
    kinds = {record.kind for record in used}
    assert {"model_source", "tokenizer"} <= kinds
    assert ("executor" in kinds) is bool(foreign) is in_process


@pytest.mark.parametrize("in_process", [False, True])
@pytest.mark.parametrize("tokenizer", [None, MODEL])
def test_a_core_reads_the_tokenizer_that_a_front_end_has_found(in_process, tokenizer):
    """No model source runs in its process, whatever name the user gave to a tokenizer."""

    async def answer():
        plugins = {**fake_plugins(), "scheduler_participant:reads": f"{__name__}:Reads"}
        options = {"scheduler_participants": ["reads"], "tokenizer": tokenizer}
        async with AsyncEngine(
            MODEL, in_process=in_process, plugins=plugins, executor="echo", **options
        ) as engine:
            return [one async for one in engine.generate("hi", SamplingParams(max_tokens=2))]

    assert "".join(one.outputs[0].text for one in asyncio.run(answer())[-1:]) == "hi"
