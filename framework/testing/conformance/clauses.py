"""Clauses: single promises of a contract, each with an id, and checked by one method of a suite."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from packaging.version import Version

if TYPE_CHECKING:
    from framework.testing.conformance.suite import Suite

FIRST_RELEASE = "0.1"
"""Clauses of the kit's first release never were a novelty."""


class Layer(IntEnum):
    """Checked in this order; behind a layer that broke nothing is run.

    STATIC: from metadata, without an import.  IMPORT: in a process of its own.
    CONSTRUCT: make and close.  BEHAVIOUR: against a slow, obvious reference.
    DEVICE: what only the hardware shows.
    """

    STATIC = 1
    IMPORT = 2
    CONSTRUCT = 3
    BEHAVIOUR = 4
    DEVICE = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """One promise.

    id: PREFIX-NNN, never used again for another promise.  text: one sentence that says what
    must hold.  must: a broken SHOULD does not make a plugin unfit.  since: the release of the
    core that brought it.  needs, lacks: it is about declared capabilities, or an undeclared one.
    of: methods of the contract that it is about.  explains: clauses of earlier layers; where only
    these failed it is run all the same, as it may say more precisely why.
    method: name of the suite's method.
    """

    id: str
    text: str
    layer: Layer
    must: bool
    since: str
    needs: tuple[str, ...]
    lacks: str | None
    of: tuple[str, ...]
    explains: tuple[str, ...]
    method: str

    def required(self, release: str) -> bool:
        """Whether it is a MUST in `release`: a new clause is a SHOULD for one minor release."""
        return self.must and not _is_new(self.since, release)


@functools.cache  # asked of all clauses before each of a later layer
def _is_new(since: str, release: str) -> bool:
    born, now = Version(since), Version(release)
    fresh = (born.major, born.minor) == (now.major, now.minor)
    return fresh and born != Version(FIRST_RELEASE)


Check = Callable[[Any], None]


def clause(
    name: str,
    text: str,
    *,
    layer: Layer = Layer.BEHAVIOUR,
    must: bool = True,
    since: str = FIRST_RELEASE,
    needs: str | tuple[str, ...] = (),
    lacks: str | None = None,
    of: tuple[str, ...] = (),
    explains: tuple[str, ...] = (),
) -> Callable[[Check], Check]:
    """Mark a method of a suite as the check of one clause; see `Clause` for the arguments.

    The method returns if the promise is kept, and raises otherwise.
    """
    if needs and lacks:
        raise ValueError(f"clause {name} needs a capability and lacks one: split it")

    def mark(check: Check) -> Check:
        made = Clause(
            id=name,
            text=text,
            layer=layer,
            must=must,
            since=since,
            needs=(needs,) if isinstance(needs, str) else needs,
            lacks=lacks,
            of=of,
            explains=explains,
            method=check.__name__,
        )
        check.__dict__["clause"] = made
        return check

    return mark


def clauses_of(suite: type[Suite]) -> tuple[Clause, ...]:
    """The clauses of a suite by layer, then by id; those of its bases are among them.

    Read from the classes that declare them, so that a subclass that covers or deletes a check
    does not lose its clause.  Raises ValueError for an id with two checks.
    """
    found: dict[str, Clause] = {}
    for cls in reversed(suite.__mro__):
        for value in vars(cls).values():
            made = getattr(value, "clause", None)
            if not isinstance(made, Clause):
                continue
            if made.id in found:
                raise ValueError(f"{suite.__name__} has two checks for clause {made.id}")
            found[made.id] = made
    return tuple(sorted(found.values(), key=lambda c: (c.layer, c.id)))


def check_of(suite: type[Suite], made: Clause) -> Check | None:
    """The method that checks a clause, or None where a subclass covered or deleted it."""
    check: Check | None = getattr(suite, made.method, None)
    return check if getattr(check, "clause", None) is made else None
