"""One broken endpoint for each clause of the suite; a sound one passes it."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack, aclosing
from typing import ClassVar

import fastapi
import pytest
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, StreamingResponse
from pydantic import BaseModel, SecretStr

from framework.contracts.endpoint import Endpoint
from framework.engine.async_engine import AsyncEngine
from framework.errors import FrameworkError
from framework.plugins.policy import Policy
from framework.plugins.registry import PluginRegistry
from framework.testing.conformance import check
from framework.testing.conformance.suites.endpoint import EndpointSuite
from framework.testing.conformance.suites.served import small_engine
from framework_http import sse
from framework_http.leaving import unless_gone
from tests.conformance.fake_time import spend
from tests.conformance.mutants import (
    IN_PROCESS,
    WHOLE,
    assert_caught,
    breaks,
    mutants_of,
    uncovered,
    unpaired,
)


class QuickSuite(EndpointSuite):
    # Where the clause alone is run, that a mutant breaks, nothing else has to be ready in time.
    gone_seconds = 1.0 if WHOLE else 0.2


class Fields(BaseModel):
    text: str
    stream: bool = False


class Plain(Endpoint):
    """Continues a text; says how busy the engine is."""

    def routes(self, service):
        router = fastapi.APIRouter()

        @router.get("/load")
        async def load():
            return {"running": service.last_stats.running}

        @router.post("/text")
        async def text(fields: Fields, request: fastapi.Request):
            return await self.answer(service, fields, request)

        self.more(router, service)
        return router

    def more(self, router, service):
        pass

    async def answer(self, service, fields, request):
        if fields.stream:
            return await self.stream(self.events(service, fields), request)
        return {"text": await unless_gone(request, self.whole(service, fields))}

    async def stream(self, events, request):
        return await sse.stream(events, request)

    async def events(self, service, fields):
        async with aclosing(service.generate(fields.text)) as outputs:
            async for output in outputs:
                yield {"text": output.outputs[0].text}

    async def whole(self, service, fields):
        found = ""
        async for item in self.events(service, fields):
            found = item["text"]
        return found


@breaks("ENDP-001")
class HasNoRoutes(Endpoint):
    """Is not finished."""

    def routes(self, service):
        return fastapi.APIRouter()


@breaks("ENDP-032")
class ShowsItsKey(Plain):
    """In whatever is logged."""

    public: ClassVar[bool] = True
    own_keys = ("plain",)


@breaks("ENDP-032")
class BehindTwoKeys(Plain):
    """Of which a request can bring one."""

    own_keys = (SecretStr("own"),)


@breaks("ENDP-010")
class WarmsUp(Plain):
    """Begins before anybody asks."""

    def more(self, router, service):
        self.task = asyncio.ensure_future(service.with_tokenizer(lambda tokenizer: None))


@breaks("ENDP-011")
class TakesAll(Plain):
    """Answers whatever nobody else does, and some of what others do."""

    def more(self, router, service):
        @router.get("/{path:path}")
        async def anything(path: str):
            return {"path": path}


@breaks("ENDP-012")
class SaysNothing(Plain):
    """Reads a body that no description tells of."""

    def more(self, router, service):
        @router.post("/secret")
        async def secret(request: fastapi.Request):
            if not await request.body():
                raise fastapi.HTTPException(400, "a body is needed")
            return {}


@breaks("ENDP-013")
class KnowsItsPlace(Plain):
    """Takes the root for its own."""

    def more(self, router, service):
        @router.get("/old")
        async def old():
            return RedirectResponse("/load")


@breaks("ENDP-014", "ENDP-015")
class Trusts(Plain):
    """Reads what it is given without looking."""

    def more(self, router, service):
        schema = Fields.model_json_schema()
        body = {"required": True, "content": {"application/json": {"schema": schema}}}

        @router.post("/length", openapi_extra={"requestBody": body})
        async def length(request: fastapi.Request):
            return {"length": len((await request.json())["text"])}


class Ratio(BaseModel):
    of: float = 1.0


@breaks("ENDP-015")
class Divides(Plain):
    """By whatever it is told."""

    def more(self, router, service):
        @router.post("/ratio")
        async def ratio(fields: Ratio):
            return {"ratio": round(10 / fields.of)}


@breaks("ENDP-016", "ENDP-027")
class LooksUp(Plain):
    """What is there, it thinks."""

    def more(self, router, service):
        @router.get("/names/{name}")
        async def named(name: str):
            return {"place": ["x", "nothing"].index(name)}


@breaks("ENDP-017", "ENDP-018")
class Silent(Plain):
    """Would rather say nothing than no."""

    async def events(self, service, fields):
        try:
            async for item in super().events(service, fields):
                yield item
        except FrameworkError:
            yield {"text": ""}


@breaks("ENDP-018")
class Breaks(Plain):
    """Streams until it cannot."""

    async def stream(self, events, request):
        first = await unless_gone(request, anext(events))

        async def lines():
            yield sse.data(first or {})
            async with aclosing(events):
                async for item in events:
                    yield sse.data(item)

        return StreamingResponse(lines(), media_type=sse.EVENT_STREAM)


@breaks("ENDP-019")
class BareLines(Plain):
    """Calls them events."""

    async def stream(self, events, request):
        form = sse.Form(
            encode=lambda item: item["text"].encode() + b"\n\n",
            fault=lambda error: {"text": str(error)},
        )
        return await sse.stream(events, request, form)


@breaks("ENDP-020")
class WaitsForNobody(Plain):
    """Does not look who listens."""

    async def answer(self, service, fields, request):
        if fields.stream:
            return await super().answer(service, fields, request)
        return {"text": await self.whole(service, fields)}


@breaks("ENDP-021", "ENDP-020")
class GoesOn(Plain):
    """Lets a task of its own read the engine."""

    async def events(self, service, fields):
        queue = asyncio.Queue()

        async def read():
            try:
                async for item in Plain.events(self, service, fields):
                    queue.put_nowait(item)
                queue.put_nowait(None)
            except FrameworkError as error:
                queue.put_nowait(error)

        self.task = asyncio.create_task(read())
        while (item := await queue.get()) is not None:
            if isinstance(item, FrameworkError):
                raise item
            yield item


@breaks("ENDP-022")
class OneAtATime(Plain):
    """For the sake of order."""

    def more(self, router, service):
        self.lock = asyncio.Lock()

    async def whole(self, service, fields):
        async with self.lock:
            return await super().whole(service, fields)


@breaks("ENDP-026")
class Ponders(Plain):
    """Works where everybody waits."""

    async def whole(self, service, fields):
        spend(1.0)
        return await super().whole(service, fields)


@breaks("ENDP-026")
class PondersOnLongTexts(Plain):
    """Reads what it is given, letter by letter, before it looks how much it is."""

    async def whole(self, service, fields):
        spend(1e-5 * len(fields.text))
        return await super().whole(service, fields)


@breaks("ENDP-026")
class StreamsInJerks(Plain):
    """Sleeps between two events."""

    async def events(self, service, fields):
        async for item in super().events(service, fields):
            if fields.stream:
                spend(1.0)
            yield item


@breaks("ENDP-023")
class LastOne(Plain):
    """There is but one service, it thinks."""

    def more(self, router, service):
        type(self).service = service

    async def answer(self, service, fields, request):
        return await super().answer(self.service, fields, request)


@breaks("ENDP-024")
class Generous(Plain):
    """Anybody may have the engine."""

    public = True


@breaks("ENDP-025")
class Lingers(Plain):
    """Has something left to do, always."""

    async def answer(self, service, fields, request):
        self.task = asyncio.create_task(asyncio.Event().wait())
        return await super().answer(service, fields, request)


@breaks("ENDP-025", "ALL-031")
class LeavesThreads(Plain):
    """Starts one for each request, to wait for something."""

    ends = threading.Event()

    async def answer(self, service, fields, request):
        threading.Thread(target=self.ends.wait, args=(60.0,), daemon=True).start()
        return await super().answer(service, fields, request)


@breaks("ENDP-027", "ENDP-015", "ENDP-031")
class TellsTheLast(Plain):
    """Shows what was asked before, as an example."""

    before = ""

    async def whole(self, service, fields):
        before, self.before = self.before, fields.text
        return await super().whole(service, fields) + before


@breaks("ENDP-028")
class Markup(Plain):
    """Makes a page of what it was sent."""

    async def answer(self, service, fields, request):
        found = await super().answer(service, fields, request)
        return found if fields.stream else HTMLResponse(f"<p>{found['text']}</p>")


CHANGING = ["endpoint:administration@framework-plugin-http"]
OURS = [r.key for r in PluginRegistry(policy=Policy()).records("endpoint") if r.first_party]


@breaks("ENDP-029")
class WritesAscii(Plain):
    """Drops what a terminal of its author could not show."""

    async def whole(self, service, fields):
        return (await super().whole(service, fields)).encode("ascii", "ignore").decode()


@breaks("ENDP-030")
class OpensItself(Plain):
    """To whatever site the browser shows."""

    async def answer(self, service, fields, request):
        found = await super().answer(service, fields, request)
        if fields.stream:
            return found
        return JSONResponse(found, headers={"Access-Control-Allow-Origin": "*"})


@breaks("ENDP-031")
class RemembersAll(Plain):
    """For statistics that nobody has written yet."""

    texts: ClassVar[list[str]] = []

    async def whole(self, service, fields):
        self.texts.append(fields.text)
        return await super().whole(service, fields)


@breaks("ENDP-031", "ENDP-017", "ENDP-018", "ENDP-020", "ENDP-022")
class CachesByItsText(Plain):
    """Without a bound."""

    def routes(self, service):
        self.known = {}
        return super().routes(service)

    async def whole(self, service, fields):
        if fields.text not in self.known:
            self.known[fields.text] = await super().whole(service, fields)
        return self.known[fields.text]


@breaks("ENDP-033")
class StreamsAtTheEnd(Plain):
    """All of it at once."""

    async def events(self, service, fields):
        for item in [item async for item in super().events(service, fields)]:
            yield item


MUTANTS = mutants_of(list(globals().values()))


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_caught(mutant):
    LeavesThreads.ends.clear()
    try:
        assert_caught(mutant, QuickSuite)
    finally:
        LeavesThreads.ends.set()


def test_every_clause_has_a_mutant_and_every_capability_both_sides():
    assert uncovered(EndpointSuite, MUTANTS) == set()
    assert unpaired(EndpointSuite) == set()


def test_a_sound_endpoint_conforms():
    report = check(Plain, suite=EndpointSuite, layers=IN_PROCESS)
    assert not report.failures, report.text()


class OnOneEngine(EndpointSuite):
    """Whatever is asked finds the engine as it was left by all that was asked before."""

    runner: ClassVar[asyncio.Runner]
    engine: ClassVar[AsyncEngine]

    def on_engine(self, work):
        async def run():
            await work(self.engine)

        self.runner.run(run())


@pytest.fixture(scope="module")
def on_one_engine():
    with asyncio.Runner() as runner, ExitStack() as left:
        one = small_engine()
        OnOneEngine.runner, OnOneEngine.engine = runner, runner.run(one.__aenter__())
        left.callback(lambda: runner.run(one.__aexit__(None, None, None)))
        yield OnOneEngine


@pytest.mark.parametrize("plugin", [plugin for plugin in OURS if plugin not in CHANGING])
def test_our_endpoints_conform(plugin, on_one_engine):
    report = check(plugin, suite=on_one_engine)
    assert not report.failures, report.text()


@pytest.mark.parametrize("plugin", CHANGING)
def test_those_that_change_the_engine_conform(plugin):
    report = check(plugin)
    assert not report.failures, report.text()
