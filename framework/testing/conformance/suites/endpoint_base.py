"""An endpoint at its place in a small host, with an engine behind it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from framework.contracts.endpoint import Endpoint
from framework.testing.conformance.cases import Case, expect
from framework.testing.conformance.suite import Suite
from framework.testing.conformance.suites.asgi import Answer, Asked, hosted, send
from framework.testing.conformance.suites.described import Operation, hidden, operations
from framework.testing.conformance.suites.served import Watched, small_engine

if TYPE_CHECKING:
    from fastapi import APIRouter, FastAPI

    from framework.engine.async_engine import AsyncEngine

PREFIX = "/plugins/kit"


@dataclass
class Site:
    """What one clause works on."""

    service: Watched
    router: APIRouter
    app: FastAPI
    operations: list[Operation]

    async def generating(self) -> list[Operation]:
        """Those operations whose example lets the engine generate."""
        found = []
        for operation in self.operations:
            self.service.used.clear()
            await send(self.app, operation.asked())
            if "generate" in self.service.used:
                found.append(operation)
        return found


class EndpointBase(Suite):
    """gone_seconds: in which an endpoint has to hear that its client is gone.
    turn_budget: seconds for which others may have to wait while a handler runs."""

    kind = "endpoint"
    ordinary = ("examples_are_served",)
    gone_seconds: ClassVar[float] = 5.0
    turn_budget: ClassVar[float] = 0.1

    def site(self, service: Watched, prefix: str = PREFIX) -> Site:
        """A new instance, at its place."""
        endpoint: Endpoint = self.new()
        router = endpoint.routes(service)
        app = hosted(router, prefix)
        memo = self.target.memo
        if prefix not in memo:  # the document of an endpoint takes longer than most requests
            memo[prefix] = [*operations(app.openapi()), *hidden(router, prefix)]
        return Site(service, router, app, memo[prefix])

    def on_site(self, work: Callable[[Site], Awaitable[None]], prefix: str = PREFIX) -> None:
        """Run `work` on a new engine and a new instance."""
        self.on_engine(lambda engine: work(self.site(Watched(engine), prefix)))

    def on_engine(self, work: Callable[[AsyncEngine], Awaitable[None]]) -> None:
        """Run `work` on a new engine, in a loop of its own."""

        async def run() -> None:
            async with small_engine() as engine:
                await work(engine)

        asyncio.run(run())

    @staticmethod
    def variants(operation: Operation) -> Iterator[Asked]:
        """The example, and as a stream if it can be one."""
        yield operation.asked()
        if operation.streams:
            yield operation.asked({"stream": True})


async def answered(app: Any, asked: Asked, case: Case | None = None) -> Answer:
    """A whole answer, and nothing that was raised."""
    if case is not None:
        case.note(request=asked)
    found = await send(app, asked)
    expect(
        found.error is None,
        "the endpoint raises something that is no answer",
        expected="an error of framework.errors, an HTTPException or a response",
        found=f"{asked}: {found}",
    )
    expect(found.complete, "the answer does not end", found=f"{asked}: {found}")
    return found


async def longest_turn(work: Awaitable[object], now: Callable[[], float]) -> float:
    """Seconds for which nobody else had a turn in this event loop until `work` was done."""
    task = asyncio.ensure_future(work)
    longest, before = 0.0, now()
    while not task.done():
        await asyncio.sleep(0.001)
        after = now()
        longest, before = max(longest, after - before), after
    await task
    return longest


async def quiet(service: Watched) -> bool:
    """No generation runs; what was cancelled has had its turns to end."""
    for _ in range(50):
        if not service.running:
            return True
        await asyncio.sleep(0.01)
    return False


@asynccontextmanager
async def unchanged() -> AsyncIterator[None]:
    """No thread is begun within."""
    before = set(threading.enumerate())
    yield
    begun = [thread.name for thread in threading.enumerate() if thread not in before]
    expect(not begun, "threads are begun", found=", ".join(begun))
