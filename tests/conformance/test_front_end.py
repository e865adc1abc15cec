"""One broken front end for each clause of the suite; sound ones pass it."""

from __future__ import annotations

import asyncio
import importlib.util
import socket
from pathlib import Path
from unittest.mock import patch

import pytest

from framework.contracts.front_end import FrontEnd
from framework.errors import ConfigError
from framework.testing.conformance import check
from framework.testing.conformance.suites.front_end import FrontEndSuite
from tests.conformance.mutants import (
    IN_PROCESS,
    WHOLE,
    assert_caught,
    breaks,
    mutants_of,
    uncovered,
    unpaired,
)

SOURCE = "examples_plugins/front_end/src/example_plain_http/__init__.py"
SPEC = importlib.util.spec_from_file_location("plain_http", Path(__file__).parents[2] / SOURCE)
assert SPEC is not None
assert SPEC.loader is not None
http = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(http)
http.Options.model_rebuild(_types_namespace=vars(http))


class QuickSuite(FrontEndSuite):
    # Where the clause alone is run, that a mutant breaks, nothing else has to be ready in time.
    stop_seconds = 2.0 if WHOLE else 0.2
    left_seconds = 0.1


class BriefSuite(FrontEndSuite):
    """For what never ends, and has nothing else to do."""

    stop_seconds = 0.2
    left_seconds = 0.1


class Plain(http.PlainHttp):
    """A sound one.  parts: functions of its module to replace."""

    Options = http.Options

    def parts(self, stop):
        return {}

    async def serve(self, service, endpoints, stop):
        with patch.multiple(http, **(self.parts(stop) or {"MOST": http.MOST})):
            await super().serve(service, endpoints, stop)


class NoEndpoints(Plain):
    """A sound one without endpoints."""

    serves_endpoints = False

    async def serve(self, service, endpoints, stop):
        await super().serve(service, [], stop)


class NoPort(FrontEnd):
    """A sound one that nobody can reach."""

    async def serve(self, service, endpoints, stop):
        await stop.wait()


@breaks("FRON-001", "FRON-004", "FRON-005", "FRON-006", "FRON-007", "FRON-012")
class KeepsThePort(Plain):
    """Might need it again."""

    async def serve(self, service, endpoints, stop):
        try:
            await super().serve(service, endpoints, stop)
        finally:
            self.kept = socket.create_server(("127.0.0.1", self.options.port))


@breaks("FRON-002", "FRON-003", "FRON-006", "FRON-007", "FRON-018")
class NeverEnds(NoPort):
    """Hears nothing."""

    suite = BriefSuite

    async def serve(self, service, endpoints, stop):
        await asyncio.Event().wait()


@breaks("FRON-003")
class BeginsFirst(Plain):
    """Forgets what was said before it began."""

    async def serve(self, service, endpoints, stop):
        stop.clear()
        await super().serve(service, endpoints, stop)


@breaks("FRON-004")
class GoesOn(Plain):
    """Ends when it is told so, and only then."""

    async def serve(self, service, endpoints, stop):
        serving = asyncio.create_task(super().serve(service, endpoints, stop))
        while not serving.done():
            try:
                await asyncio.wait({serving})
            except asyncio.CancelledError:
                if stop.is_set():
                    raise
        serving.result()


@breaks("FRON-005")
class Elsewhere(Plain):
    """Takes another port where its own is taken."""

    async def serve(self, service, endpoints, stop):
        try:
            await super().serve(service, endpoints, stop)
        except ConfigError:
            await stop.wait()


@breaks("FRON-006", "FRON-007")
class OnlyOnce(Plain):
    """Is worn out then."""

    served = False

    async def serve(self, service, endpoints, stop):
        assert not self.served
        self.served = True
        await super().serve(service, endpoints, stop)


@breaks("FRON-007")
class LeavesATask(Plain):
    """Has something left to do."""

    async def serve(self, service, endpoints, stop):
        self.task = asyncio.create_task(asyncio.Event().wait())
        await super().serve(service, endpoints, stop)


@breaks("FRON-008")
class Fragile(Plain):
    """Ends at the first thing that it does not understand."""

    def parts(self, stop):
        read = http.read

        async def strict(reader):
            try:
                return await read(reader)
            except ValueError:
                stop.set()
                raise

        return {"read": strict}


@breaks("FRON-009")
class Patient(Plain):
    """Waits for whoever has come."""

    def parts(self, stop):
        read = http.read

        async def waiting(reader):
            try:
                return await read(reader)
            except asyncio.CancelledError:
                return await read(reader)

        return {"read": waiting}


@breaks("FRON-010")
class DropsBodies(Plain):
    """Passes requests on, but for what they bring."""

    def parts(self, stop):
        receiver = http.receiver
        return {"receiver": lambda reader, body: receiver(reader, b"")}


@breaks("FRON-011")
class AsksTwice(Plain):
    """Looks at the routes before it takes them."""

    def parts(self, stop):
        build = http.build

        def twice(service, endpoints):
            for mounted in endpoints:
                mounted.endpoint.routes(service)
            return build(service, endpoints)

        return {"build": twice}


@breaks("FRON-012")
class FirstOneWins(Plain):
    """Takes the first of two."""

    def parts(self, stop):
        return {"check_routes": lambda routes: None}


@breaks("FRON-013")
class CutsOff(Plain):
    """Stops at once."""

    async def serve(self, service, endpoints, stop):
        serving = asyncio.create_task(super().serve(service, endpoints, asyncio.Event()))
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
        finally:
            serving.cancel()
            stopped.cancel()
            await asyncio.wait({serving, stopped})


@breaks("FRON-014")
class AllTheSame(Plain):
    """Every error is the server's."""

    def parts(self, stop):
        return {"STATUS": {}}


@breaks("FRON-015")
class TellsAll(Plain):
    """Shows what went wrong to whoever asks."""

    def parts(self, stop):
        build = http.build

        def debugging(service, endpoints):
            app = build(service, endpoints)
            app.debug = True
            return app

        return {"build": debugging}


@breaks("FRON-016")
class NeverMind(Plain):
    """Does not look who is still there."""

    def parts(self, stop):
        def deaf(reader, body):
            messages = [{"type": "http.request", "body": body, "more_body": False}]

            async def receive():
                return messages.pop() if messages else await asyncio.Event().wait()

            return receive

        return {"receiver": deaf}


@breaks("FRON-017")
class Undeclared(Plain):
    """Serves endpoints, and says that it does not."""

    serves_endpoints = False


@breaks("FRON-018", "FRON-006", "FRON-007", "FRON-012")
class EndsTheEngine(Plain):
    """Tidies up."""

    async def serve(self, service, endpoints, stop):
        await super().serve(service, endpoints, stop)
        await service.shutdown()


MUTANTS = mutants_of(list(globals().values()))


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_caught(mutant):
    assert_caught(mutant, getattr(mutant, "suite", QuickSuite))


def test_every_clause_has_a_mutant_and_every_capability_both_sides():
    assert uncovered(FrontEndSuite, MUTANTS) == set()
    assert unpaired(FrontEndSuite) == set()


@pytest.mark.parametrize("plugin", [Plain, NoEndpoints, NoPort])
def test_a_sound_front_end_conforms(plugin):
    report = check(plugin, suite=FrontEndSuite, layers=IN_PROCESS)
    assert not report.failures, report.text()


def test_the_http_server_conforms():
    report = check("front_end:http")
    assert not report.failures, report.text()
