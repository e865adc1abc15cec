"""Clauses for plugins of every kind: what their import does, in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from framework.testing.conformance.bounds import Hanging
from framework.testing.conformance.cases import expect
from framework.testing.conformance.clauses import Layer, clause
from framework.testing.conformance.forks import ForkServer
from framework.testing.conformance.outcomes import Unanswered
from framework.testing.conformance.probe import IMPORT_BUDGET, Probe, probe_import
from framework.testing.conformance.timing import Timing

if TYPE_CHECKING:
    from framework.testing.conformance.target import Target

NO_END = "the import did not come to its end, as ALL-010 tells"


class ImportClauses(Timing):
    """The import is tried once, and what became of it is told once."""

    target: Target
    load_budget: ClassVar[float]
    forks: ClassVar[ForkServer | None]

    def probe(self) -> Probe:
        """What the import of the plugin does, in a process of its own; asked once."""
        if self.target.probe is None:
            try:
                self.target.probe = self.trial()
            except Hanging as error:  # the clause that asks fails; the others need not wait
                self.target.probe = Probe(error=str(error), timed_out=True)
                raise
        return self.target.probe

    def trial(self, exercise: Callable[[Any], None] | None = None) -> Probe:
        """What the import does, in a process of its own; exercise: see `probe_import`, a function
        of a module."""
        return probe_import(
            self.target.record.value,
            budget=IMPORT_BUDGET * self.slowness,
            exercise=exercise and f"{exercise.__module__}:{exercise.__name__}",
            options=dict(self.target.options),
            forks=self.forks,
        )

    def _expect_none(self, found: Sequence[str], message: str, expected: str | None = None) -> None:
        """Raise Violation for what the import did, Unanswered where it did not come to its end."""
        expect(not found, message, expected=expected, found="; ".join(found))
        if self.probe().error:
            raise Unanswered(NO_END)

    @clause("ALL-010", "it can be imported, and the import returns", layer=Layer.IMPORT)
    def import_works(self) -> None:
        expect(not self.probe().error, self.probe().error, expected="an import that returns")

    @clause("ALL-011", "the import is quick", layer=Layer.IMPORT)
    def import_is_quick(self) -> None:
        if self.probe().error:
            raise Unanswered(NO_END)
        first = [self.probe().seconds]
        seconds = self.quickest(
            lambda: first.pop() if first else self.trial().seconds, self.load_budget
        )
        self.expect_quick(seconds, self.load_budget, "the import is slow")

    @clause("ALL-012", "the import loads no heavy library", layer=Layer.IMPORT)
    def import_is_light(self) -> None:
        self._expect_none(
            self.probe().heavy,
            "the import loads heavy libraries",
            "they are imported in the methods that need them",
        )

    @clause("ALL-013", "the import opens no connection", layer=Layer.IMPORT)
    def import_is_offline(self) -> None:
        self._expect_none(self.probe().network, "the import uses the network")

    @clause("ALL-014", "the import starts no thread and no process", layer=Layer.IMPORT)
    def import_starts_nothing(self) -> None:
        begun = self.probe().threads + self.probe().processes
        self._expect_none(begun, "the import starts threads or processes")

    @clause("ALL-015", "the import leaves the process as it was", layer=Layer.IMPORT)
    def import_changes_nothing(self) -> None:
        self._expect_none(self.probe().changes, "the import changes the process")

    @clause("ALL-016", "the import patches nothing of the core", layer=Layer.IMPORT)
    def import_patches_nothing(self) -> None:
        self._expect_none(
            self.probe().patches[:5],
            "the import replaces parts of the core",
            "a plugin of a kind, or `PluginRegistry.register`",
        )

    @clause("ALL-017", "the import prints nothing", layer=Layer.IMPORT, must=False)
    def import_is_silent(self) -> None:
        printed = self.probe().printed
        self._expect_none(
            [f"{printed:.80}"] if printed else [],
            "the import writes to standard output, where answers of commands go",
            "a logger",
        )
