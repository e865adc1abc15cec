"""Checks of answers to a query, whatever the kind."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from framework.contracts.base import Query, Rejected, versioned
from framework.plugins.kinds import known_version
from framework.plugins.selection import ask_all
from framework.testing.conformance.cases import expect
from framework.testing.conformance.target import Target

Q = TypeVar("Q", bound=Query)


def but(query: Q, **changes: Any) -> Q:
    """The query with other values."""
    return dataclasses.replace(query, **changes)


def check_rejected(plugin: Any, query: Query, *fields: str) -> None:
    """Violation unless the plugin rejects the query for one of the fields."""
    asked = ", ".join(f"{field}={getattr(query, field)!r:.60}" for field in fields)
    answer = plugin.answer(query)
    expect(isinstance(answer, Rejected), f"{asked} is supported", found=answer)
    named = {reason.field for reason in answer.reasons}
    expect(named & set(fields), f"no reason names {asked}", found=sorted(named))


def check_newer(target: Target, query: Query) -> None:
    """Violation if selection would take the plugin for a field of a contract to come."""
    made: Any = dataclasses.make_dataclass(
        "NewerQuery",
        [("yet_to_come", bool, versioned(since="999.0", neutral=False))],
        bases=(type(query),),
        frozen=True,
        kw_only=True,
    )
    plain = {field.name: getattr(query, field.name) for field in dataclasses.fields(query)}
    record = target.record
    table = ask_all(target.registry, record.kind, made(**plain, yet_to_come=True))
    (row,) = (row for row in table if row.record is record)
    ours = ".".join(map(str, known_version(target.kind)))
    expect(
        isinstance(row.answer, Rejected),
        "it would be chosen for what it cannot know",
        expected=f"`knows` of the manifest, or the lower end of `contract`, up to {ours}",
        found=row.answer,
    )
