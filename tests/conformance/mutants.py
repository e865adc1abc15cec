"""Deliberately broken plugins: the kit must name the clause that each of them breaks.

A mutant is a class marked with `breaks`; `assert_caught` runs the suite of its kind on it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from framework.contracts.base import Contract, Supported
from framework.testing.conformance import Layer, Status, Suite, check, clauses_of
from framework.testing.conformance.report import Report
from tests.conformance.fake_time import timed

C = TypeVar("C", bound=type[Contract])
WHOLE = os.environ.get("MUTANTS") == "whole"
"""Suites are run whole on mutants, as in `make test-long`."""

_LEFT: list[threading.Event] = []

IN_PROCESS = (Layer.STATIC, Layer.CONSTRUCT, Layer.BEHAVIOUR, Layer.DEVICE)


@dataclass(frozen=True, slots=True)
class Breaks:
    """clause: that must fail.  also: others that may fail with it, and none else."""

    clause: str
    also: tuple[str, ...]


def breaks(clause: str, *also: str) -> Callable[[C], C]:
    """Mark a mutant with the clause that it breaks, and with those that may fall with it."""

    def mark(cls: C) -> C:
        # On the class itself, so that a subclass is no mutant by inheritance.
        cls.__mutant__ = (cls, Breaks(clause, also))
        return cls

    return mark


def mutants_of(names: Iterable[object]) -> list[type[Contract]]:
    """The marked classes among the values of a module's namespace."""
    found = []
    for value in names:
        owner, _ = getattr(value, "__mutant__", (None, None))
        if isinstance(value, type) and owner is value:
            found.append(value)
    return found


def bad_answers(
    plain: type[Contract], none: str, reasons: str, also: Collection[str] = ()
) -> tuple[type[Contract], type[Contract], type[Contract]]:
    """Of a sound plugin, whose rejections hold its `field` and `code`: one that gives None in
    place of them, which breaks clause `none`, and those in `also`; one that names a field of
    another query, and one whose code is empty, which break `reasons`."""

    class SaysNone(plain):  # type: ignore[misc, valid-type]
        """None is no answer."""

        def answer(self, query: Any) -> Any:
            answer = super().answer(query)
            return answer if isinstance(answer, Supported) else None

    class NamesNoField(plain):  # type: ignore[misc, valid-type]
        """Of another query."""

        field = "head_size"

    class NamesNoCode(plain):  # type: ignore[misc, valid-type]
        """Nothing that a program could tell it by."""

        code = ""

    made = (SaysNone, NamesNoField, NamesNoCode)
    for mutant in made:  # as if they stood beside `plain`
        mutant.__module__, mutant.__qualname__ = plain.__module__, mutant.__name__
    return breaks(none, *also)(made[0]), breaks(reasons)(made[1]), breaks(reasons)(made[2])


def mark_of(mutant: type[Contract]) -> Breaks:
    return mutant.__mutant__[1]


def assert_caught(
    mutant: type[Contract],
    suite: type[Suite],
    *,
    layers: Collection[Layer] = IN_PROCESS,
    **more: object,
) -> None:
    """The clause fails, none of an earlier layer does, and no other that is not listed.

    That no other does takes the whole suite: `make test-long` runs it (MUTANTS=whole), while
    `make test` runs the clause and the earlier layers.
    """
    mark = mark_of(mutant)
    if not WHOLE:
        more = {**more, "only": _enough(suite, mark.clause)}
    try:
        report = check(mutant, suite=timed(suite), layers=layers, **more)
    finally:
        while _LEFT:
            _LEFT.pop().set()
    assert_fails(report, mark.clause, mark.also)


def leave_a_thread() -> None:
    """Start one that goes on until `assert_caught` ends."""
    _LEFT.append(threading.Event())
    threading.Thread(target=_LEFT[-1].wait, daemon=True).start()


def _enough(suite: type[Suite], name: str) -> tuple[str, ...]:
    """A clause, and those of earlier layers."""
    clauses = clauses_of(suite)
    (own,) = (clause for clause in clauses if clause.id == name)
    return (name, *(clause.id for clause in clauses if clause.layer < own.layer))


def assert_fails(report: Report, clause: str, also: Collection[str] = ()) -> None:
    failed = {outcome.clause.id: outcome for outcome in report.failures}
    assert clause in failed, f"{clause} does not fail: {report.text(verbose=True)}"
    layer = failed[clause].clause.layer
    early = [name for name, outcome in failed.items() if outcome.clause.layer < layer]
    assert not early, f"an earlier layer broke: {report.text()}"
    others = set(failed) - {clause, *also}
    assert not others, f"others fail that are not listed: {report.text()}"
    assert not report.problems
    assert clause in failed[clause].reproduce


def uncovered(suite: type[Suite], mutants: Iterable[type[Contract]]) -> set[str]:
    """Clauses of a kind's own suite that no mutant breaks; those of all kinds are elsewhere."""
    common = {clause.id for clause in clauses_of(Suite)} if suite is not Suite else set()
    broken = {mark_of(mutant).clause for mutant in mutants}
    return {clause.id for clause in clauses_of(suite)} - common - broken


def unpaired(suite: type[Suite]) -> set[str]:
    """Capabilities without a clause for plugins that declare it, or for those that do not."""
    clauses = clauses_of(suite)
    needs = {name for clause in clauses for name in clause.needs}
    lacks = {clause.lacks for clause in clauses}
    named = (needs | lacks) - {None}
    return {c for c in {*suite.capabilities, *named} if c not in needs or c not in lacks}


def skipped(report: Report) -> set[str]:
    """Clauses that were not checked because of what the plugin declares."""
    return {o.clause.id for o in report.outcomes if o.status is Status.UNDECLARED}
