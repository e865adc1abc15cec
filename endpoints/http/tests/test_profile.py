"""POST /start_profile and /stop_profile."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import asynccontextmanager
from typing import ClassVar

import httpx
import pytest

from framework import LLM
from framework.engine.async_engine import AsyncEngine
from framework.engine.serve import mount
from framework.errors import InputError, UnsupportedError
from framework.testing.fake_model import MODEL, EchoExecutor, fake_plugins
from framework_http.application import build_app
from framework_http.options import HostOptions

KEY = {"authorization": "Bearer 0perator"}


class Profiled(EchoExecutor):
    """Has a profiler, which fails as it is told."""

    calls: ClassVar[list[dict]] = []
    fault: Exception | None = None

    def load(self, context):
        info = super().load(context)
        return dataclasses.replace(info, control_ops=info.control_ops | {"profile"})

    def control(self, op, arguments):
        if op != "profile":
            return super().control(op, arguments)
        if self.fault is not None:
            raise self.fault
        self.calls.append(dict(arguments))
        return {"trace": "/traces/1.json"} if arguments["action"] == "end" else {}


@asynccontextmanager
async def client(**more):
    options = {"endpoint.administration.enabled": True, "endpoint.administration.key": "0perator"}
    plugins = {**fake_plugins(), "executor:profiled": f"{__name__}:Profiled"}
    arguments = {"executor": "profiled", "plugins": plugins, "plugin_options": options, **more}
    async with AsyncEngine(MODEL, in_process=True, **arguments) as engine:
        app = build_app(engine, mount(engine.registry, {}), HostOptions())
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as found:
            yield found


def asked(*paths, headers=KEY, **more):
    """(status, body) of POST requests, one after the other."""

    async def run():
        async with client(**more) as http:
            found = [await http.post(path, headers=headers) for path in paths]
            alive = await http.post("/v1/completions", json={"prompt": "alive"})
            assert alive.json()["choices"][0]["text"] == "alive"
            return [(answer.status_code, answer.json()) for answer in found]

    return asyncio.run(run())


def message(answer):
    status, body = answer
    return status, body["error"]["message"].partition("\n")[0]


def test_a_profile_is_started_stopped_and_told_where_it_is(monkeypatch):
    monkeypatch.setattr(Profiled, "calls", [])
    found = asked("/start_profile", "/stop_profile")
    assert found == [
        (200, {"profiling": True}),
        (200, {"profiling": False, "trace": "/traces/1.json"}),
    ]
    assert Profiled.calls == [{"action": "begin", "trace": True}, {"action": "end"}]


def test_no_key_of_a_client_starts_one():
    assert asked("/start_profile", headers={})[0][0] == 401


def test_they_come_in_turn():
    early, _, again, _, late = asked(
        *("/stop_profile", "/start_profile", "/start_profile", "/stop_profile", "/stop_profile")
    )
    assert message(early) == message(late) == (400, "no profile runs")
    assert message(again) == (400, "a profile runs already")


def test_a_program_profiles_its_engine_in_the_same_way(monkeypatch):
    monkeypatch.setattr(Profiled, "calls", [])
    plugins = {**fake_plugins(), "executor:profiled": f"{__name__}:Profiled"}
    with LLM(MODEL, executor="profiled", plugins=plugins) as llm:
        llm.start_profile()
        with pytest.raises(InputError, match="runs already"):
            llm.start_profile()
        assert llm.stop_profile() == {"trace": "/traces/1.json"}
        with pytest.raises(InputError, match="no profile runs"):
            llm.stop_profile()
    assert Profiled.calls == [{"action": "begin", "trace": True}, {"action": "end"}]


def test_a_runner_without_a_profiler_is_refused_with_the_reason():
    [found] = asked("/start_profile", executor="echo")
    assert message(found) == (400, "the model runner has no profiler")


def test_what_the_runner_refuses_is_told_and_starts_none(monkeypatch):
    monkeypatch.setattr(Profiled, "fault", UnsupportedError("there is nowhere to write to"))
    start, stop = asked("/start_profile", "/stop_profile")
    assert message(start) == (400, "there is nowhere to write to")
    assert message(stop) == (400, "no profile runs")


def test_a_profiler_that_breaks_ends_nobody(monkeypatch):
    monkeypatch.setattr(Profiled, "fault", OSError("the disk is full"))
    [(status, body)] = asked("/start_profile")
    assert status == 500
    assert "OSError: the disk is full" in body["error"]["message"]
