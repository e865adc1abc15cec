"""Clauses about what an answer holds of what clients sent."""

from __future__ import annotations

from typing import Any

from framework.testing.conformance.cases import expect
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.suites.described import Operation
from framework.testing.conformance.suites.endpoint_base import EndpointBase, Site, answered

ROUTES = ("routes",)
SECRET = "kit-4f1c9 of another client"
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
