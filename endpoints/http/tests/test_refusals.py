"""A request that a plugin does not take: the client is told so, and not that the server failed."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import httpx
import msgspec
import pytest

from framework.contracts.participant import READY, Refuse, SchedulerParticipant
from framework.engine.async_engine import AsyncEngine
from framework.engine.serve import mount
from framework.errors import InputError, UnsupportedError
from framework.testing.fake_model import MODEL, fake_plugins
from framework_http.application import build_app
from framework_http.options import HostOptions

ROUTES = {
    "/v1/completions": {"prompt": "hi"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
}


class Picky(SchedulerParticipant):
    """Looks at its arguments when the request is to run."""

    def admit(self, request):
        wanted = msgspec.msgpack.decode(request.input.extras["picky"])
        match wanted:
            case "refuse":
                return Refuse("the kit says no")
            case "input":
                raise InputError("the kit says no", expected="another", found=wanted)
            case "unsupported":
                raise UnsupportedError("the kit says no")
            case "failed":
                return Refuse("the kit says no", failed=True)
            case "fault":
                raise ValueError("the kit says no")
        return READY


@asynccontextmanager
async def client():
    plugins = {**fake_plugins(), "scheduler_participant:picky": f"{__name__}:Picky"}
    async with AsyncEngine(
        MODEL,
        in_process=True,
        plugins=plugins,
        executor="echo",
        scheduler_participants=["picky"],
    ) as engine:
        app = build_app(engine, mount(engine.registry, {}), HostOptions())
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            yield http


def answers(path, *arguments, **more):
    async def run():
        async with client() as http:
            bodies = [{**ROUTES[path], **more, "extra_args": {"picky": of}} for of in arguments]
            return await asyncio.gather(*(http.post(path, json=body) for body in bodies))

    return asyncio.run(run())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ROUTES)
def test_who_is_at_fault_decides_the_status(path, stream):
    """400 for what the client has to change, 500 for what the plugin has done wrong."""
    asked = ("refuse", "input", "unsupported", "failed", "fault", "nothing")
    found = answers(path, *asked, stream=stream)
    assert [one.status_code for one in found] == [400, 400, 400, 500, 500, 200]
    for refusal in found[:3]:
        error = refusal.json()["error"]
        assert error["type"] == "invalid_request_error"
        assert error["message"].startswith("the kit says no")
    assert "expected another; found input" in found[1].json()["error"]["message"]
