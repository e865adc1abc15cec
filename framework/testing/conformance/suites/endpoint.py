"""The suite of kind `endpoint`: its routes, asked as its own OpenAPI document describes them, and
wrongly."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from framework.contracts.endpoint import Endpoint
from framework.testing.conformance.cases import Case, expect
from framework.testing.conformance.clauses import Layer, clause
from framework.testing.conformance.suites.asgi import UNSUPPORTED, Answer, Asked
from framework.testing.conformance.suites.described import (
    ODD_PATHS,
    ODD_VALUES,
    RUBBISH,
    WITH_BODY,
)
from framework.testing.conformance.suites.endpoint_answers import AnswerClauses
from framework.testing.conformance.suites.endpoint_base import Site, answered, unchanged
from framework.testing.conformance.suites.endpoint_engine import ROUTES, EngineClauses
from framework.testing.conformance.suites.served import Watched

if TYPE_CHECKING:
    from framework.engine.async_engine import AsyncEngine

MEDIA = ("text/plain", "multipart/form-data", "application/x-www-form-urlencoded", "")


class EndpointSuite(EngineClauses, AnswerClauses):
    """See EndpointBase."""

    @clause(
        "ENDP-001",
        "routes gives a router with routes, which OpenAPI can describe",
        layer=Layer.CONSTRUCT,
        of=ROUTES,
    )
    def there_are_routes(self) -> None:
        from fastapi import APIRouter

        async def work(site: Site) -> None:
            expect(isinstance(site.router, APIRouter), "no router", found=site.router)
            expect(site.router.routes, "no routes", expected="one, at least")

        self.on_site(work)

    @clause(
        "ENDP-032",
        "its own keys are secrets, and a request needs no key of the host's beside one of them",
        layer=Layer.CONSTRUCT,
        of=("own_keys",),
    )
    def own_keys_are_secrets(self) -> None:
        from pydantic import SecretStr

        endpoint: Endpoint = self.new()
        keys = list(endpoint.own_keys)
        kinds = {type(key) for key in keys} - {SecretStr}
        expect(not kinds, "a key that a log would show", expected="SecretStr", found=kinds)
        expect(
            not keys or endpoint.public,
            "the host asks for a key of its own, too, and a request has room for one",
            expected="public = True",
            found=endpoint.public,
        )

    @clause("ENDP-010", "routes asks the engine for nothing, and starts nothing", of=ROUTES)
    def routes_are_only_told(self) -> None:
        async def work(engine: AsyncEngine) -> None:
            async with unchanged():
                service, tasks = Watched(engine), asyncio.all_tasks()
                endpoint: Endpoint = self.new()
                endpoint.routes(service)
                await asyncio.sleep(0)
                expect(not service.worked, "the engine works", found=", ".join(service.used))
                begun = asyncio.all_tasks() - tasks
                expect(not begun, "tasks are begun before any request", found=begun)

        self.on_engine(work)

    @clause("ENDP-011", "no route stands in the way of other endpoints", of=ROUTES)
    def routes_have_a_name(self) -> None:
        async def work(site: Site) -> None:
            for route in site.router.routes:
                path = str(getattr(route, "path", ""))
                plain = path.startswith("/") and not path.startswith("/{")
                expect(
                    plain,
                    "a route that takes the paths of others",
                    expected="a path whose first part is fixed",
                    found=path or "everything",
                )

        self.on_site(work)

    @clause("ENDP-012", "each route can be called as its description says", of=ROUTES)
    def examples_are_served(self) -> None:
        async def work(site: Site) -> None:
            for operation in site.operations:
                for asked in self.variants(operation):
                    found = await answered(site.app, asked)
                    nobody = found.status == 404 and operation.parameters
                    served = found.status < 400 or nobody or UNSUPPORTED in found.headers
                    expect(
                        served,
                        "a request that follows from the OpenAPI document is refused",
                        expected="an answer; `examples` in its schema show what to ask",
                        found=f"{asked}: {found}",
                    )

        self.on_site(work)

    @clause("ENDP-013", "it works wherever it is mounted", of=ROUTES)
    def it_works_anywhere(self) -> None:
        statuses: list[list[int]] = []

        async def work(site: Site) -> None:
            found = [await answered(site.app, op.asked()) for op in site.operations]
            statuses.append([answer.status for answer in found])
            for answer in found if statuses[1:] else ():
                place = answer.headers.get("location", "/plugins/kit")
                expect(
                    not place.startswith("/") or place.startswith("/plugins/kit"),
                    "it leads out of its place",
                    expected="a place under /plugins/kit",
                    found=place,
                )

        self.on_site(work, "")
        self.on_site(work, "/plugins/kit")
        expect(
            statuses[0] == statuses[1],
            "under /plugins/kit it answers otherwise than at the root",
            expected=statuses[0],
            found=statuses[1],
        )

    @clause("ENDP-014", "a body that is rubbish is refused with a reason", of=ROUTES)
    def rubbish_is_refused(self) -> None:
        for case in self.cases(1):

            async def work(site: Site, case: Case = case) -> None:
                for operation in site.operations:
                    if operation.method not in WITH_BODY:
                        continue
                    plain = operation.asked()
                    for body in RUBBISH:
                        asked = Asked(plain.method, plain.path, body, plain.query)
                        found = await self._unharmed(site, asked, case)
                        wrong = found.status < 400 and operation.fields and body[:1] != b"{"
                        expect(not wrong, "it is taken", found=f"{asked}: {found}")
                    for media in MEDIA:
                        asked = Asked(plain.method, plain.path, plain.body, plain.query, media)
                        await self._unharmed(site, asked, case)

            self.on_site(work)

    @clause("ENDP-015", "no value of any field does harm", of=ROUTES)
    def odd_fields_do_no_harm(self) -> None:
        for case in self.cases(2):

            async def work(site: Site, case: Case = case) -> None:
                for operation in site.operations:
                    for _ in range(20 if operation.known else 0):
                        name = str(case.rng.choice(operation.known))
                        value = ODD_VALUES[int(case.rng.integers(0, len(ODD_VALUES)))]
                        await self._unharmed(site, operation.asked({name: value}), case)

            self.on_site(work)

    @clause("ENDP-016", "no path and no query does harm", of=ROUTES)
    def odd_paths_do_no_harm(self) -> None:
        for case in self.cases(1):

            async def work(site: Site, case: Case = case) -> None:
                for operation in site.operations:
                    plain = operation.asked()
                    open_ended = operation.parameters or operation.queries
                    for path in ODD_PATHS if open_ended else ODD_PATHS[:1]:
                        await self._unharmed(site, operation.asked(None, path), case)
                        query = "&".join(f"{name}={path}" for name in operation.queries)
                        asked = Asked(plain.method, plain.path, plain.body, f"{query}&%00=%ff")
                        await self._unharmed(site, asked, case)

            self.on_site(work)

    async def _unharmed(self, site: Site, asked: Asked, case: Case) -> Answer:
        """Not 5xx, and what is refused is refused with a reason."""
        found = await answered(site.app, asked, case)
        expect(found.status < 500, "a bad request is a fault of the server", found=found)
        expect(found.status < 400 or found.body, "it is refused without a reason", found=found)
        expect(b"Traceback" not in found.body, "it shows its inside", found=found)
        return found
