"""A front end that is started, reached and stopped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

from framework.contracts.base import Contract
from framework.contracts.front_end import FrontEnd, Mounted
from framework.testing.conformance.cases import expect
from framework.testing.conformance.suite import Suite
from framework.testing.conformance.suites.front_end_parts import HOST, Offered, ask, free_port
from framework.testing.conformance.suites.served import Watched, small_engine

PREFIX = "/plugins/kit"


@dataclass
class Up:
    """A front end that serves.  task: of `serve`."""

    port: int
    task: asyncio.Task[None]
    stop: asyncio.Event = field(default_factory=asyncio.Event)


class FrontEndBase(Suite):
    """stop_seconds: in which a front end without running requests has to end.  left_seconds: after
    which what it began has to have ended, too.

    A front end with an option `port` is told a free one; how to reach others the kit does not
    know.
    """

    kind = "front_end"
    ordinary = ("it_starts_again",)
    capabilities = ("endpoints", "port")
    stop_seconds: ClassVar[float] = 10.0
    left_seconds: ClassVar[float] = 2.0

    def declared(self) -> frozenset[str]:
        """`port` where there is such an option, `endpoints` where `serves_endpoints` says so."""
        cls: Any = self.target.load()
        if not self._has_port():
            return frozenset()
        return frozenset(("endpoints", "port") if cls.serves_endpoints else ("port",))

    def _has_port(self) -> bool:
        model = self.target.load().Options
        return model is not None and "port" in model.model_fields

    def make(self) -> Contract:
        """At a free port."""
        return self.at(free_port())

    def at(self, port: int) -> FrontEnd:
        """A new instance for that port."""
        options = dict(self.target.options)
        if self._has_port():
            options["port"] = port
        made = self.target.registry.create_record(self.target.record, options)
        return cast("FrontEnd", made)

    def on_engine(self, work: Callable[[Watched], Awaitable[None]]) -> None:
        """Run `work` with a new engine."""

        async def run() -> None:
            async with small_engine() as engine:
                await work(Watched(engine))

        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)  # what a server says of bad clients is no news here
        try:
            asyncio.run(run())
        finally:
            logging.disable(before)

    @asynccontextmanager
    async def up(
        self,
        service: Watched,
        *endpoints: Mounted,
        port: int | None = None,
        made: FrontEnd | None = None,
    ) -> AsyncIterator[Up]:
        """A front end that listens; it is stopped at the end."""
        at = port or free_port()
        front = made if made is not None else self.at(at)
        stop = asyncio.Event()
        one = Up(at, asyncio.create_task(front.serve(service, endpoints, stop)), stop)
        try:
            await self._listens(one)
            yield one
        finally:
            stop.set()
            await asyncio.wait({one.task}, timeout=self.most)
            if not one.task.done():
                one.task.cancel()
            await asyncio.gather(one.task, return_exceptions=True)

    async def _listens(self, one: Up) -> None:
        """Wait until the port answers.  A front end without one has had its time."""
        if not self._has_port():
            await asyncio.wait({one.task}, timeout=0.1)
        while self._has_port() and not one.task.done():
            try:
                _, writer = await asyncio.open_connection(HOST, one.port)
            except OSError:
                await asyncio.sleep(0.01)
                continue
            writer.close()
            return
        if one.task.done():
            one.task.result()
            expect(False, "serve returns before it was stopped", expected="it serves until then")

    @property
    def most(self) -> float:
        """`stop_seconds` on this machine."""
        return self.stop_seconds * self.slowness

    async def noticed(self, port: int) -> None:
        """Come back when it has taken whoever came before and what they sent: it answers another,
        or ends its connection.  One that does neither has had its time."""
        with suppress(OSError, TimeoutError):
            await asyncio.wait_for(ask(port, "/"), self.slowness)

    async def ends(self, one: Up, what: str) -> None:
        """It has to end now, without an error."""
        await asyncio.wait({one.task}, timeout=self.most)
        expect(
            one.task.done(),
            what,
            expected=f"serve returns within {self.most:g} s (stop_seconds); no request runs",
            found="it goes on",
        )
        one.task.result()


def mounted(endpoint: Offered, prefix: str = PREFIX, name: str = "kit") -> Mounted:
    """An endpoint in use."""
    return Mounted(endpoint=endpoint, key=f"endpoint:{name}@kit", prefix=prefix)


def both(endpoints: Sequence[Offered]) -> tuple[Mounted, ...]:
    """Two plugins at one place."""
    return tuple(mounted(endpoint, name=f"kit{n}") for n, endpoint in enumerate(endpoints))
