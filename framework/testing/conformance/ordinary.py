"""Clauses for plugins of every kind: what an ordinary use leaves in the process."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from framework.halt import Halt
from framework.testing.conformance import patches
from framework.testing.conformance.cases import expect
from framework.testing.conformance.clauses import Clause, clause
from framework.testing.conformance.outcomes import NoDevice, Unanswered
from framework.testing.conformance.process import RANDOM, process_restored, threads_since
from framework.testing.conformance.shared import Shared
from framework.testing.conformance.suites.place import bridge_to, odd_threads, shared_rows

if TYPE_CHECKING:
    from framework.contracts.base import Contract
    from framework.testing.conformance.target import Target

MEMO = "what an ordinary use leaves"


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """changes: what of the process changed, and how.  threads: names of those that go on.
    printed: to standard output."""

    changes: Mapping[str, str]
    threads: Sequence[str]
    printed: str


class OrdinaryUse:
    """ordinary: methods of the suite that check clauses; together they use a plugin as its
    ordinary user does, from first to last.  Without any it is made and closed.
    may_set: how rows begin of what plugins of the kind are there to set.
    prints: they are there to write to standard output."""

    ordinary: ClassVar[tuple[str, ...]] = ()
    may_set: ClassVar[tuple[str, ...]] = ()
    prints: ClassVar[bool] = False
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
            rows = self.rows()
            before = set(threading.enumerate())
            with redirect_stdout(io.StringIO()) as said:
                changes = self._changes(rows)
            threads = threads_since(before)
            if threads or len(self.rows()) > len(rows):
                # Libraries keep threads of their own from their first use on (tqdm does): what
                # counts is what each use adds.  Of one that was loaded meanwhile it is told only
                # now what it shares.
                before = set(threading.enumerate())
                changes = {**self._changes(self.rows()), **changes}
                threads = threads_since(before)
            memo[MEMO] = Left(changes=changes, threads=threads, printed=said.getvalue())
        found: Left = memo[MEMO]
        return found

    def rows(self) -> Mapping[str, Shared]:
        """What is read before and after a use."""
        rows = shared_rows(self.target.registry, getattr(self, "tensor_api", None))
        return {name: row for name, row in rows.items() if not name.startswith(self.may_set)}

    def _changes(self, rows: Mapping[str, Shared]) -> dict[str, str]:
        """What one use changes, and how; it is put back."""
        before = {name: shared.read() for name, shared in rows.items() if name.startswith(RANDOM)}
        drawn: dict[str, object] = {}
        with self._odd_threads(rows), process_restored(rows) as changed:
            self.use_once()
            drawn |= {name: rows[name].read() for name in before}
        found = self._patched()
        for name, text in changed.items():
            if name not in drawn or self._seeds(rows, name, (before[name], drawn[name])):
                found[name] = text
        return found

    @contextmanager
    def _odd_threads(self, rows: Mapping[str, Shared]) -> Iterator[None]:
        """See `odd_threads`; for all tensors."""
        with ExitStack() as kept:
            for name in rows:
                head, _, api = name.partition(" of ")
                if head == "threads":
                    kept.enter_context(odd_threads(bridge_to(self.target.registry, api)))
            yield

    def _patched(self) -> dict[str, str]:
        """What of the standard library it has replaced since it was first tried; it is put back."""
        own = self.target.record.value.partition(":")[0].partition(".")[0].strip()
        before = self.target.library
        found = list(patches.by(before, patches.of_library(), own))
        patches.put_back(before, found)
        return {str(place): "it is replaced" for place in found}

    def _seeds(self, rows: Mapping[str, Shared], name: str, states: Sequence[object]) -> bool:
        """Whether random numbers go on alike whatever they were before: to draw some is no harm."""
        write, found = rows[name].write, list[object]()
        if write is None:
            return False
        for state in states:
            with process_restored(rows):
                write(state)
                self.use_once()
                found.append(rows[name].read())
        return all(state == found[0] for state in found)

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

    @clause("ALL-032", "its use prints nothing", must=False)
    def use_is_silent(self) -> None:
        printed = "" if self.prints else self.left().printed
        expect(
            not printed,
            "it writes to standard output, where answers of commands go",
            expected="a logger",
            found=f"{printed:.80}",
        )
