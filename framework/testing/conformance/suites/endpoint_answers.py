"""Clauses about what an answer holds of what clients sent."""

from __future__ import annotations

import gc
import json
from typing import Any

from framework.testing.conformance import garbage
from framework.testing.conformance.cases import expect
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.held import where_text_is
from framework.testing.conformance.suites.described import Operation
from framework.testing.conformance.suites.endpoint_base import EndpointBase, Site, answered

ROUTES = ("routes",)
SECRET = "kit-4f1c9 of another client"
PLAIN, SCRIPTS = "ab c d", "\u00e9\u4e2d x"
MARKUP = "<b>kit-4f</b>"  # of no more characters than answers have tokens


class AnswerClauses(EndpointBase):
    """What belongs to one client, and what a browser makes of it."""

    @clause("ENDP-027", "nothing of one request is in the answer to another", of=ROUTES)
    def answers_are_apart(self) -> None:
        async def work(site: Site) -> None:
            for operation in site.operations:
                await answered(site.app, operation.asked(_with(operation, SECRET), "kit-4f1c9"))
                for other in site.operations:
                    for asked in self.variants(other):
                        found = await answered(site.app, asked)
                        expect(
                            b"kit-4f1c9" not in found.body,
                            "it tells one client what another one sent",
                            expected=f"an answer to {asked}, and to nothing else",
                            found=found,
                        )

        self.on_site(work)

    @clause("ENDP-028", "what a client sends does not come back as markup", of=ROUTES)
    def markup_is_not_reflected(self) -> None:
        async def work(site: Site) -> None:
            for operation in site.operations:
                asked = operation.asked(_with(operation, MARKUP), "%3Cb%3Ekit-4f%3C%2Fb%3E")
                found = await answered(site.app, asked)
                media = found.headers.get("content-type", "")
                expect(
                    not media.startswith(("text/html", "image/svg", "application/xhtml"))
                    or MARKUP.encode() not in found.body,
                    "a browser would run what a client sent",
                    expected="application/json or text/plain, or `html.escape`",
                    found=f"{media}: {found}",
                )

        self.on_site(work)

    @clause(
        "ENDP-029",
        "what comes back of a client's text comes back in every script",
        of=ROUTES,
    )
    def scripts_are_kept(self) -> None:
        """Of an answer that holds a plain text: also one that is not plain."""

        async def work(site: Site) -> None:
            for operation in site.operations:
                plain = await answered(site.app, operation.asked(_with(operation, PLAIN)))
                if PLAIN not in _told(plain.body):
                    continue
                found = await answered(site.app, operation.asked(_with(operation, SCRIPTS)))
                expect(
                    found.status >= 400 or SCRIPTS in _told(found.body),
                    "characters of a client's text are lost",
                    expected=f"{SCRIPTS!r} in it, as {PLAIN!r} is",
                    found=found,
                )

        self.on_site(work)

    @clause(
        "ENDP-030",
        "it lets no other site read its answers: that is the operator's to say",
        of=ROUTES,
    )
    def other_sites_are_kept_out(self) -> None:
        async def work(site: Site) -> None:
            for operation in site.operations:
                for asked in self.variants(operation):
                    found = await answered(site.app, asked)
                    given = [n for n in found.headers if n.startswith("access-control-allow")]
                    expect(
                        not given,
                        "an answer opens itself to other sites",
                        expected="no such header; `cors_origins` of the host sets them",
                        found="; ".join(f"{name}: {found.headers[name]}" for name in given),
                    )

        self.on_site(work)

    @clause("ENDP-031", "it keeps no text of a request once that is answered", of=ROUTES)
    def texts_are_not_kept(self) -> None:
        """In its instance, its class, its module or what its routes hold."""

        async def work(site: Site) -> None:
            endpoint = self.made[-1]
            with garbage.of_its_own():
                for number in range(2):  # a place for the last one is a place for one, too
                    text = f"{SECRET} {number}"
                    for operation in site.operations:
                        await answered(site.app, operation.asked(_with(operation, text)))
                gc.collect()
            roots = [endpoint.__dict__, site.router.routes]
            roots += [vars(cls) for cls in type(endpoint).__mro__ if cls.__module__ == _own(self)]
            kept = where_text_is(SECRET, roots, but=(site.service, site.app))
            expect(not kept, "texts of requests are kept", found=kept)

        self.on_site(work)


def _own(suite: Any) -> str:
    return str(suite.target.record.value.partition(":")[0].strip())


def _told(body: bytes) -> str:
    """The text, with what JSON escapes."""
    text = body.decode("utf-8", "replace")
    try:
        return str(json.dumps(json.loads(text), ensure_ascii=False))
    except ValueError:
        return text


def _with(operation: Operation, text: str) -> dict[str, Any]:
    """Its texts, all of them this one."""
    fields = operation.fields if isinstance(operation.fields, dict) else {}
    return {name: _replaced(value, text) for name, value in fields.items()}


def _replaced(value: Any, text: str) -> Any:
    """A value with the text in place of those that people write: what is one word chooses."""
    match value:
        case str():
            return text if value == "Hello" or " " in value else value
        case list():
            return [_replaced(inner, text) for inner in value]
        case dict():
            return {name: _replaced(inner, text) for name, inner in value.items()}
    return value
