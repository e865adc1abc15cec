"""Clauses of endpoints on an engine that waits, fails and dies, and for clients that go away."""

from __future__ import annotations

import asyncio
import itertools
import threading
from typing import TYPE_CHECKING, Any

from framework.errors import EngineDeadError, FrameworkError, InputError, OverloadedError
from framework.testing.conformance.cases import Case, expect
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.suites.asgi import Answer, Asked, send
from framework.testing.conformance.suites.described import Operation
from framework.testing.conformance.suites.endpoint_base import (
    EndpointBase,
    Site,
    answered,
    longest_turn,
    quiet,
)
from framework.testing.conformance.suites.served import Watched
from framework.testing.conformance.timing import ATTEMPTS

if TYPE_CHECKING:
    from framework.engine.async_engine import AsyncEngine

ROUTES = ("routes",)
ROUNDS = 6


class EngineClauses(EndpointBase):
    """What becomes of requests that the engine works on."""

    @clause("ENDP-017", "an error of the engine before the first output is answered", of=ROUTES)
    def errors_are_told(self) -> None:
        errors: tuple[tuple[FrameworkError, tuple[int, ...]], ...] = (
            (InputError("the kit says no"), (400, 422)),
            (OverloadedError("the kit is busy"), (429, 503)),
            (EngineDeadError("the kit has stopped"), (503,)),
        )
        for case in self.cases(1):

            async def work(site: Site, case: Case = case) -> None:
                for operation in await site.generating():
                    for error, statuses in errors:
                        for asked in self.variants(operation):
                            site.service.fails = error
                            found = await answered(site.app, asked, case)
                            site.service.fails = None
                            expect(
                                found.status in statuses and b"the kit" in found.body,
                                f"{type(error).__name__} of the engine is not told",
                                expected=f"status {statuses[0]}, and the message",
                                found=found,
                            )

            self.on_site(work)

    @clause("ENDP-018", "when the engine dies in the middle the answer ends", of=ROUTES)
    def late_errors_end_the_answer(self) -> None:
        for case in self.cases(1):

            async def work(site: Site, case: Case = case) -> None:
                site.service.late = True
                for operation in await site.generating():
                    for asked in self.variants(operation):
                        site.service.fails = EngineDeadError("the kit has stopped")
                        found = await answered(site.app, asked, case)
                        site.service.fails = None
                        expect(b"the kit" in found.body, "the error is not told", found=found)

            self.on_site(work)

    @clause("ENDP-019", "streams are server-sent events, each of them whole", of=ROUTES)
    def streams_are_events(self) -> None:
        for case in self.cases(1):

            async def work(site: Site, case: Case = case) -> None:
                for operation in site.operations:
                    for asked in self.variants(operation):
                        found = await answered(site.app, asked, case)
                        if found.headers.get("content-type", "").startswith("text/event-stream"):
                            _expect_events(found)

            self.on_site(work)

    @clause("ENDP-020", "a client that goes away ends its request while it waits", of=ROUTES)
    def who_goes_away_is_not_waited_for(self) -> None:
        for case in self.cases(1):

            async def work(site: Site, case: Case = case) -> None:
                for operation in await site.generating():
                    for asked in self.variants(operation):
                        site.service.before = asyncio.Event()
                        await self._leave(site, asked, case)

            self.on_site(work)

    @clause("ENDP-021", "a client that goes away in a stream ends its request", of=ROUTES)
    def who_leaves_a_stream_is_not_waited_for(self) -> None:
        for case in self.cases(1):

            async def work(site: Site, case: Case = case) -> None:
                for operation in await site.generating():
                    if operation.streams:
                        site.service.between = asyncio.Event()
                        await self._leave(site, operation.asked({"stream": True}), case)

            self.on_site(work)

    @clause(
        "ENDP-033", "a stream begins with the engine's first output, not with its last", of=ROUTES
    )
    def streams_come_as_they_are_made(self) -> None:
        for case in self.cases(1):

            async def work(site: Site, case: Case = case) -> None:
                for operation in await site.generating():
                    if not operation.streams:
                        continue
                    asked, answer = operation.asked({"stream": True}), Answer()
                    case.note(request=asked)
                    gate = site.service.between = asyncio.Event()
                    asking = asyncio.create_task(send(site.app, asked, answer=answer))
                    begun = asyncio.create_task(answer.first.wait())
                    await asyncio.wait({begun}, timeout=self.gone_seconds * self.slowness)
                    early = bool(answer.pieces)
                    gate.set()
                    site.service.between = None
                    await asking
                    await begun
                    expect(early, "nothing of a stream comes before the end", found=asked)

            self.on_site(work)

    async def _leave(self, site: Site, asked: Asked, case: Case) -> None:
        """The engine holds a generation when its client goes away."""
        case.note(request=asked)
        gone, service = asyncio.Event(), site.service
        service.held.clear()
        asking = asyncio.create_task(send(site.app, asked, gone=gone))
        await service.held.wait()
        gone.set()
        done, _ = await asyncio.wait({asking}, timeout=self.gone_seconds * self.slowness)
        ended = bool(done) and await quiet(service)
        for gate in (service.before, service.between):
            if gate is not None:
                gate.set()
        service.before = service.between = None
        await asking
        expect(
            ended,
            "the engine goes on for a client that is gone",
            expected="the iterator of `generate` is closed when http.disconnect comes",
            found=f"it runs after {self.gone_seconds * self.slowness:g} s",
        )

    @clause("ENDP-022", "while one request waits for the engine others are served", of=ROUTES)
    def others_are_served(self) -> None:
        for case in self.cases(1):

            async def work(site: Site, case: Case = case) -> None:
                for operation in await site.generating():
                    case.note(request=operation.asked())
                    gate = site.service.before = asyncio.Event()
                    site.service.held.clear()
                    first = asyncio.create_task(send(site.app, operation.asked()))
                    await site.service.held.wait()
                    site.service.before = None
                    second = asyncio.create_task(send(site.app, operation.asked()))
                    await asyncio.wait({second}, timeout=self.gone_seconds * self.slowness)
                    served = second.done() and not first.done()
                    gate.set()
                    for found in (await first, await second):
                        expect(found.status < 400, "it is not served", found=found)
                    expect(
                        served,
                        "one request waits for another",
                        expected="nothing is held while the engine works",
                        found="the second is served when the first is",
                    )

            self.on_site(work)

    @clause("ENDP-026", "while a request is worked on, the host answers others", of=ROUTES)
    def the_host_goes_on(self) -> None:
        async def work(site: Site) -> None:
            for operation in site.operations:
                for asked in (*self.variants(operation), operation.asked(_long(operation))):
                    held = await self._held(site, asked)
                    self.expect_quick(
                        held,
                        self.turn_budget,
                        f"{asked} keeps everybody waiting: a handler holds the event loop",
                        "; what blocks belongs into `await asyncio.to_thread(...)`, or into a "
                        "handler without `async`, which gets a thread",
                    )

        self.on_site(work)

    async def _held(self, site: Site, asked: Asked) -> float:
        """For how long nobody else had a turn; the least of some tries, as machines pause, too."""
        found = []
        for _ in range(ATTEMPTS):
            found.append(await longest_turn(answered(site.app, asked), self.now))
            if found[-1] <= self.turn_budget * self.slowness:
                break
        return min(found)

    @clause("ENDP-023", "each instance has the service that it was given", of=ROUTES)
    def services_are_apart(self) -> None:
        async def work(engine: AsyncEngine) -> None:
            one, other = (self.site(Watched(engine)) for _ in range(2))
            other.service.used.clear()
            for operation in one.operations:
                await answered(one.app, operation.asked())
            used = ", ".join(other.service.used)
            expect(not used, "it asks the service of another instance", found=used)

        self.on_engine(work)

    @clause("ENDP-024", "who is let in without a key costs the engine nothing", of=ROUTES)
    def public_ones_do_no_work(self) -> None:
        cls: Any = self.target.load()
        expect(isinstance(cls.public, bool), "public is no bool", found=cls.public)

        async def work(site: Site) -> None:
            for operation in site.operations if cls.public else ():
                for asked in self.variants(operation):
                    await answered(site.app, asked)
                    expect(not site.service.worked, "the engine works", found=asked)

        self.on_site(work)

    @clause("ENDP-025", "nothing runs on once a request is answered", of=ROUTES)
    def nothing_runs_on(self) -> None:
        async def work(site: Site) -> None:
            async def all_once() -> tuple[int, int]:
                for operation in site.operations:
                    for asked in self.variants(operation):
                        await answered(site.app, asked)
                for _ in range(10):
                    await asyncio.sleep(0)
                return len(asyncio.all_tasks()), threading.active_count()

            rounds = [await all_once() for _ in range(ROUNDS)]
            tasks, threads = (list(counts) for counts in zip(*rounds, strict=True))
            expect(await quiet(site.service), "a generation goes on", found=site.service.running)
            left = max(tasks) - tasks[0]
            expect(left <= 0, "tasks go on", expected="they end with the request", found=left)
            grew = sum(after > before for before, after in itertools.pairwise(threads))
            expect(  # a pool grows now and then, but not for ever
                grew < ROUNDS - 1,
                "each round of requests leaves threads behind",
                expected="threads that end, or a pool",
                found=f"{threads} threads, round by round",
            )

        self.on_site(work)


def _long(operation: Operation) -> dict[str, str]:
    """Its texts, and each of them a long one."""
    fields = operation.fields if isinstance(operation.fields, dict) else {}
    return {name: "long " * 20_000 for name, value in fields.items() if isinstance(value, str)}


def _expect_events(found: Answer) -> None:
    known = (b"data:", b"event:", b"id:", b"retry:", b":")
    *events, end = found.body.replace(b"\r\n", b"\n").split(b"\n\n")
    expect(not end, "the last event has no end", expected="an empty line", found=end[:80])
    for event in events:
        fine = all(line.startswith(known) for line in event.split(b"\n"))
        expect(fine, "no event", expected="lines of data:, event:, id:, retry:", found=event[:80])
