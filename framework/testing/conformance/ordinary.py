"""Clauses for plugins of every kind: what an ordinary use leaves in the process."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from framework.halt import Halt
from framework.testing.conformance.cases import expect
from framework.testing.conformance.clauses import Clause, clause
from framework.testing.conformance.outcomes import NoDevice, Unanswered
from framework.testing.conformance.process import (
    RANDOM,
    SHARED,
    process_restored,
    threads_since,
)

if TYPE_CHECKING:
    from framework.contracts.base import Contract
    from framework.testing.conformance.target import Target

MEMO = "what an ordinary use leaves"


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """changes: what of the process changed, and how.  threads: names of those that go on."""

    changes: Mapping[str, str]
    threads: Sequence[str]


class OrdinaryUse:
    """ordinary: methods of the suite that check clauses; together they use a plugin as its
    ordinary user does, from first to last.  Without any it is made and closed."""

    ordinary: ClassVar[tuple[str, ...]] = ()
    made: list[Contract]
    target: Target

    def new(self) -> Any:
        """See `Suite.new`."""
        raise NotImplementedError

    def close(self, plugin: Contract) -> None:
        """See `Suite.close`."""
        raise NotImplementedError

    def declared(self) -> frozenset[str]:
        """See `Suite.declared`."""
        raise NotImplementedError

    def use_once(self) -> None:
        """Use it and close it.  Unanswered where that fails, of which other clauses tell."""
        try:
            declared = self.declared()
            self.new()
            for name in self.ordinary:
                check = getattr(self, name)
                about: Clause = check.clause
                if set(about.needs) <= declared and about.lacks not in declared:
                    check()
            while self.made:
                self.close(self.made.pop())
        except (NoDevice, Unanswered):
            raise
        except (Exception, Halt) as error:
            raise Unanswered(f"it cannot be used, as other clauses tell: {error!s:.80}") from error

    def left(self) -> Left:
        """What one use leaves; asked once."""
        memo = self.target.memo
        if MEMO not in memo:
            before = set(threading.enumerate())
            with process_restored() as changed:
                self.use_once()
            threads = threads_since(before)
            if threads:
                # Libraries keep threads of their own from their first use on (tqdm does): what
                # counts is what each use adds.
                before = set(threading.enumerate())
                self.use_once()
                threads = threads_since(before)
            changes = {
                name: text
                for name, text in changed.items()
                if name not in RANDOM or self._seeds(name)
            }
            memo[MEMO] = Left(changes=changes, threads=threads)
        found: Left = memo[MEMO]
        return found

    def _seeds(self, name: str) -> bool:
        """Whether random numbers go on alike whatever they were before: to draw some is no harm."""
        found = []
        for seed in (1, 2):
            with process_restored():
                RANDOM[name](seed)
                self.use_once()
                found.append(SHARED[name].read())
        return bool(found[0] == found[1])

    @clause("ALL-030", "its use leaves the process as it was")
    def process_is_left_alone(self) -> None:
        expect(
            not self.left().changes,
            "it changes what all in the process share",
            expected="a change that is undone before the call returns, or none",
            found="; ".join(f"{name}: {text}" for name, text in self.left().changes.items()),
        )

    @clause("ALL-031", "threads that it starts end with close")
    def threads_are_ended(self) -> None:
        """They are not waited for: who closes something may end the process next."""
        left = self.left().threads
        expect(not left, "threads go on after close", found=", ".join(left))
