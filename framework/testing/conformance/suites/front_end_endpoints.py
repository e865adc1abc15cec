"""Clauses of front ends that serve endpoints."""

from __future__ import annotations

import asyncio

from framework.errors import PluginError
from framework.testing.conformance.cases import expect, expect_raises
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.suites.front_end_base import (
    PREFIX,
    FrontEndBase,
    both,
    mounted,
)
from framework.testing.conformance.suites.front_end_parts import (
    HOST,
    SECRET,
    Offered,
    ask,
    free_port,
    is_free,
    request,
)
from framework.testing.conformance.suites.served import Watched

SERVE = ("serve",)


class EndpointClauses(FrontEndBase):
    """What becomes of endpoints and of their requests."""

    @clause("FRON-010", "endpoints are served at their places", needs="endpoints", of=SERVE)
    def endpoints_are_served(self) -> None:
        async def work(service: Watched) -> None:
            one, other = Offered(), Offered()
            async with self.up(service, mounted(one), mounted(other, "", "root")) as up:
                for prefix in (PREFIX, ""):
                    status, rest = await ask(up.port, f"{prefix}/hello")
                    expect(status == 200 and b"kit" in rest, "not served", found=(status, rest))
                    status, rest = await ask(up.port, f"{prefix}/length", b"x" * 100_000)
                    expect(b"100000" in rest, "a body does not arrive", found=(status, rest))
                status, _ = await ask(up.port, "/nowhere")
                expect(status == 404, "what nobody offers", expected=404, found=status)

        self.on_engine(work)

    @clause("FRON-011", "each endpoint is asked for its routes once", needs="endpoints", of=SERVE)
    def routes_are_asked_for_once(self) -> None:
        async def work(service: Watched) -> None:
            offered = Offered()
            async with self.up(service, mounted(offered)) as one:
                await ask(one.port, f"{PREFIX}/hello")
                await ask(one.port, f"{PREFIX}/hello")
            found = offered.services
            right = len(found) == 1 and found[0] is service
            expect(right, "asked otherwise", expected="once, with the service", found=found)

        self.on_engine(work)

    @clause(
        "FRON-012",
        "two endpoints with one route are a PluginError before anything is served",
        needs="endpoints",
        of=SERVE,
    )
    def equal_routes_are_refused(self) -> None:
        async def work(service: Watched) -> None:
            port = free_port()
            front = self.at(port)
            serving = front.serve(service, both((Offered(), Offered())), asyncio.Event())
            with expect_raises(PluginError, "serving two endpoints with one route"):
                await asyncio.wait_for(serving, self.most)
            expect(is_free(port), "it listens all the same", found=port)

        self.on_engine(work)

    @clause(
        "FRON-013",
        "when it is stopped requests that run are served to their end, and no new ones",
        needs="endpoints",
        of=SERVE,
    )
    def it_drains(self) -> None:
        async def work(service: Watched) -> None:
            offered = Offered()
            async with self.up(service, mounted(offered)) as one:
                asking = []
                for path in ("wait", "stream"):
                    offered.waiting.clear()
                    asking.append(asyncio.create_task(ask(one.port, f"{PREFIX}/{path}")))
                    await offered.waiting.wait()
                one.stop.set()
                await self._refuses(one.port)
                expect(not one.task.done(), "it ends while requests run")
                offered.go.set()
                for task, end in zip(asking, (b"to the end", b"last"), strict=True):
                    status, rest = await task
                    expect(end in rest, "a request is cut off", found=(status, rest))
                await self.ends(one, "its requests have ended, and it goes on")

        self.on_engine(work)

    async def _refuses(self, port: int) -> None:
        """New clients are turned away: no connection, no answer, or 503."""
        end = asyncio.get_running_loop().time() + self.most
        while True:
            try:
                status, _ = await ask(port, f"{PREFIX}/hello")
            except OSError:
                return
            if status in (0, 503):
                return
            late = asyncio.get_running_loop().time() > end
            expect(not late, "stopped, it takes new requests", expected="503, or nothing")
            await asyncio.sleep(0.02)

    @clause("FRON-014", "errors of this project have their status", needs="endpoints", of=SERVE)
    def errors_have_a_status(self) -> None:
        async def work(service: Watched) -> None:
            async with self.up(service, mounted(Offered())) as one:
                for name, wanted in (("input", 400), ("busy", 429), ("dead", 503)):
                    status, rest = await ask(one.port, f"{PREFIX}/fail/{name}")
                    told = status == wanted and b"the kit" in rest
                    expect(told, "the error is not told", expected=wanted, found=(status, rest))
                    waits = wanted != 429 or b"retry-after:" in rest.lower()
                    expect(waits, "nobody is told when to come again", expected="Retry-After")

        self.on_engine(work)

    @clause(
        "FRON-015",
        "an endpoint that breaks is a 500 that tells nothing, and others are served",
        needs="endpoints",
        of=SERVE,
    )
    def faults_stay_inside(self) -> None:
        async def work(service: Watched) -> None:
            async with self.up(service, mounted(Offered())) as one:
                status, rest = await ask(one.port, f"{PREFIX}/fail/fault")
                expect(status == 500, "a fault is no 500", found=(status, rest))
                inside = SECRET.encode() in rest or b"Traceback" in rest
                expect(not inside, "it shows its inside", found=rest)
                status, rest = await ask(one.port, f"{PREFIX}/hello")
                expect(status == 200, "others are not served any more", found=(status, rest))

        self.on_engine(work)

    @clause("FRON-016", "an endpoint hears that its client is gone", needs="endpoints", of=SERVE)
    def clients_go_away(self) -> None:
        async def work(service: Watched) -> None:
            offered = Offered()
            async with self.up(service, mounted(offered)) as one:
                _, writer = await asyncio.open_connection(HOST, one.port)
                writer.write(request(f"{PREFIX}/wait"))
                await offered.waiting.wait()
                writer.close()
                waiting = asyncio.create_task(offered.left.wait())
                heard, _ = await asyncio.wait({waiting}, timeout=self.most)
                waiting.cancel()
                offered.go.set()
                expect(heard, "nobody says so", expected="http.disconnect from `receive`")

        self.on_engine(work)

    @clause("FRON-017", "one that serves no endpoints asks none", lacks="endpoints", of=SERVE)
    def endpoints_are_left_alone(self) -> None:
        async def work(service: Watched) -> None:
            offered = Offered()
            async with self.up(service, mounted(offered)):
                pass
            expect(not offered.services, "an endpoint is asked for its routes")

        self.on_engine(work)
