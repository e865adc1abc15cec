"""The suite of kind `front_end`: started, reached by good clients and bad ones, and stopped."""

from __future__ import annotations

import asyncio
import os
import socket
import threading

from framework.contracts.front_end import Mounted
from framework.errors import ConfigError, EngineDeadError
from framework.testing.conformance.cases import Case, expect, expect_raises
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.outcomes import Violation
from framework.testing.conformance.suites.front_end_base import PREFIX, mounted
from framework.testing.conformance.suites.front_end_endpoints import SERVE, EndpointClauses
from framework.testing.conformance.suites.front_end_parts import (
    HOST,
    Offered,
    ask,
    free_port,
    is_free,
)
from framework.testing.conformance.suites.served import Watched

RUBBISH = (
    b"",
    b"\r\n\r\n",
    b"\x00" * 100,
    b"GET\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01",
    b"x" * 70_000,
)


class FrontEndSuite(EndpointClauses):
    """See FrontEndBase."""

    @clause(
        "FRON-001",
        "it listens at the port that it is told until it is stopped, then the port is free",
        needs="port",
        of=SERVE,
    )
    def it_listens_until_it_is_stopped(self) -> None:
        async def work(service: Watched) -> None:
            async with self.up(service) as one:
                expect(not one.task.done(), "serve returns at once")
                one.stop.set()
                await self.ends(one, "stopped, it goes on")
                expect(is_free(one.port), "the port is still taken", found=one.port)

        self.on_engine(work)

    @clause("FRON-002", "it serves until it is stopped", lacks="port", of=SERVE)
    def it_runs_until_it_is_stopped(self) -> None:
        async def work(service: Watched) -> None:
            async with self.up(service) as one:
                one.stop.set()
                await self.ends(one, "stopped, it goes on")

        self.on_engine(work)

    @clause("FRON-003", "one that is stopped before it has begun ends", of=SERVE)
    def it_may_be_stopped_early(self) -> None:
        async def work(service: Watched) -> None:
            stop = asyncio.Event()
            stop.set()
            task = asyncio.create_task(self.at(free_port()).serve(service, (), stop))
            done, _ = await asyncio.wait({task}, timeout=self.most)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            expect(done, "stopped before it began, it goes on")

        self.on_engine(work)

    @clause("FRON-004", "one that is cancelled ends at once, whoever it serves", of=SERVE)
    def it_may_be_cancelled(self) -> None:
        async def work(service: Watched) -> None:
            offered = Offered()
            async with self.up(service, *self._offered(offered)) as one:
                asking = await self._waiting(one.port, offered)
                one.task.cancel()
                await asyncio.wait({one.task}, timeout=self.most)
                expect(one.task.done(), "cancelled, it goes on")
                offered.go.set()
                await asyncio.gather(*asking, return_exceptions=True)
            if self._has_port():
                expect(is_free(one.port), "the port is still taken", found=one.port)

        self.on_engine(work)

    def _offered(self, offered: Offered) -> tuple[Mounted, ...]:
        return (mounted(offered),) if "endpoints" in self.declared() else ()

    async def _waiting(self, port: int, offered: Offered) -> list[asyncio.Task[object]]:
        """A request that waits, where endpoints are served."""
        if "endpoints" not in self.declared():
            return []
        asking: asyncio.Task[object] = asyncio.create_task(ask(port, f"{PREFIX}/wait"))
        await offered.waiting.wait()
        return [asking]

    @clause("FRON-005", "a port that is taken is a ConfigError", needs="port", of=SERVE)
    def a_taken_port_is_an_error(self) -> None:
        async def work(service: Watched) -> None:
            with socket.socket() as taken:
                taken.bind((HOST, 0))
                taken.listen()
                front = self.at(taken.getsockname()[1])
                serving = front.serve(service, (), asyncio.Event())
                with expect_raises(ConfigError, "serving at a port that is taken"):
                    await asyncio.wait_for(serving, self.most)

        self.on_engine(work)

    @clause("FRON-006", "it may be started again, at the same port", of=SERVE)
    def it_starts_again(self) -> None:
        async def work(service: Watched) -> None:
            port = free_port()
            front = self.at(port)
            for made in (front, front, None):
                async with self.up(service, port=port, made=made) as one:
                    one.stop.set()
                    await self.ends(one, "started again, it cannot be stopped")

        self.on_engine(work)

    @clause(
        "FRON-018", "the engine goes on when it has ended, for whoever began it ends it", of=SERVE
    )
    def the_engine_goes_on(self) -> None:
        async def work(service: Watched) -> None:
            async with self.up(service) as one:
                one.stop.set()
                await self.ends(one, "it cannot be stopped")
            try:
                texts = [output.outputs[0].text async for output in service.generate("ab")]
            except EngineDeadError as error:
                raise Violation(f"it ends an engine that is not its own: {error}") from error
            expect(texts, "the engine gives nothing any more")

        self.on_engine(work)

    @clause("FRON-007", "nothing is left of it: no task, no thread, no open file", of=SERVE)
    def nothing_is_left(self) -> None:
        async def work(service: Watched) -> None:
            for number in range(3):
                before, open_files = _alive(), _open_files()
                async with self.up(service) as one:
                    one.stop.set()
                    await self.ends(one, "stopped, it goes on")
                # The first time it imports what it needs.
                left = await self._left(before, open_files) if number else []
                expect(not left, "something is left after the end", found=left)

        self.on_engine(work)

    async def _left(self, before: set[object], open_files: int) -> list[str]:
        """What is there that was not, once whatever is about to end has ended."""
        end = asyncio.get_running_loop().time() + self.left_seconds * self.slowness
        while True:
            left = [str(each) for each in _alive() - before]
            left += [f"file {n}" for n in range(open_files, _open_files())]
            if not left or asyncio.get_running_loop().time() > end:
                return left
            await asyncio.sleep(0.01)

    @clause("FRON-008", "no client ends it, whatever it sends", needs="port", of=SERVE)
    def rubbish_does_no_harm(self) -> None:
        for case in self.cases(1):

            async def work(service: Watched, case: Case = case) -> None:
                async with self.up(service) as one:
                    for data in RUBBISH:
                        case.note(sent=repr(data[:20]))
                        _, writer = await asyncio.open_connection(HOST, one.port)
                        writer.write(data)
                        await self.noticed(one.port)
                        writer.close()
                        expect(not one.task.done(), "it has ended", found=repr(data[:20]))
                    (await asyncio.open_connection(HOST, one.port))[1].close()

            self.on_engine(work)

    @clause(
        "FRON-009", "a client that says nothing does not hold up the end", needs="port", of=SERVE
    )
    def silent_clients_hold_nothing_up(self) -> None:
        async def work(service: Watched) -> None:
            async with self.up(service) as one:
                _, writer = await asyncio.open_connection(HOST, one.port)
                await self.noticed(one.port)
                one.stop.set()
                await self.ends(one, "it waits for a client that says nothing")
                writer.close()

        self.on_engine(work)


def _alive() -> set[object]:
    """Tasks and threads."""
    threads = [thread for thread in threading.enumerate() if thread.is_alive()]
    return {*asyncio.all_tasks(), *threads}


def _open_files() -> int:
    """How many this process has; 0 where the system does not tell."""
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
