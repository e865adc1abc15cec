"""The suite that all plugins pass, and the base of the suites of single kinds.

A suite is a class; a method marked with `clause` checks one promise.  In a test of your own:

    class TestMine(SchedulingPolicySuite):
        plugin = "scheduling_policy:mine"

It is collected by pytest, one test per clause; `framework plugins conform` and `check()` reach
the same methods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar
from unittest import SkipTest

from framework.contracts.base import Contract
from framework.testing.conformance import common
from framework.testing.conformance.cases import Case
from framework.testing.conformance.clauses import Clause, clauses_of
from framework.testing.conformance.forks import ForkServer
from framework.testing.conformance.outcomes import Status
from framework.testing.conformance.target import Target, target_of

if TYPE_CHECKING:
    from framework.testing.conformance.run import Run


class Suite(common.CommonClauses):
    """Load, select and close: what a plugin of any kind must do.

    Class attributes, for a subclass to set:
        plugin: "kind:name", "kind:name@distribution", or a class.
        options: of the plugin, {key: value}.
        expected_failures: {clause id: reason}; one that passes, or is unknown, is a failure.
        seed: of all random cases.
        load_budget: seconds that the import may take; time in which other programs have the
            processor does not count, on Linux.
        construction_budget: seconds that the constructor may take.
        forks: what makes the processes in which imports are tried; None: each a new interpreter.

    A suite of a kind sets `kind`, the `capabilities` that its clauses come in pairs for,
    `declared()`, and in `ordinary` the names of those of its checks that make an ordinary use.
    """

    kind: ClassVar[str | None] = None
    capabilities: ClassVar[tuple[str, ...]] = ()
    plugin: ClassVar[str | type[Contract] | None] = None
    options: ClassVar[Mapping[str, Any]] = {}
    expected_failures: ClassVar[Mapping[str, str]] = {}
    seed: ClassVar[int] = 0
    load_budget: ClassVar[float] = 2.0
    construction_budget: ClassVar[float] = 0.5
    forks: ClassVar[ForkServer | None] = None

    _run: ClassVar[Run | None] = None

    # No constructor: pytest collects no class that has one.  `Run` fills these in.
    target: Target
    clause: Clause
    case: Case | None = None
    only_case: int | None = None
    made: list[Contract]

    def make(self) -> Contract:
        """A new instance of the plugin.  Override it to prepare what the plugin needs."""
        return self.target.make()

    def close(self, plugin: Contract) -> None:
        """Give back what an instance holds; called for each that `new` gave."""
        done = getattr(plugin, "close", None)
        if done is not None:
            done()

    def declared(self) -> frozenset[str]:
        """Those of `capabilities` that the plugin declares, by the object the runtime reads."""
        return frozenset()

    def unproven(self) -> tuple[str, ...]:
        """What the plugin claims and no clause tries; the report says so."""
        return ()

    def new(self) -> Any:
        """An instance that is closed when the clause ends."""
        plugin = self.make()
        self.made.append(plugin)
        return plugin

    def cases(self, count: int) -> Iterator[Case]:
        """Random cases of the clause that is being checked; all but one when only that one is
        to be reproduced."""
        for index in range(count):
            if self.only_case is None or self.only_case == index:
                self.case = Case(self.clause.id, self.seed, index)
                yield self.case

    # pytest's face.

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """One test for each clause."""
        if "clause_id" in metafunc.fixturenames:
            metafunc.parametrize("clause_id", [c.id for c in clauses_of(metafunc.cls)])

    def test_clause(self, clause_id: str) -> None:
        """Raise AssertionError for a failure, SkipTest for what does not concern the plugin."""
        cls = type(self)
        if "_run" not in vars(cls) or cls._run is None:
            from framework.testing.conformance.run import Run

            if cls.plugin is None:
                raise AssertionError(f"{cls.__name__} does not say which plugin it tests")
            cls._run = Run(cls, target_of(cls.plugin, kind=cls.kind, options=cls.options))
        outcome = cls._run.outcome(clause_id)
        if outcome.status is Status.FAILED:
            raise AssertionError(
                f"{clause_id}: {outcome.clause.text}\n{outcome.message}\n{outcome.reproduce}"
            )
        if outcome.status not in (Status.PASSED, Status.EXPECTED_FAILURE):
            raise SkipTest(f"{outcome.status}: {outcome.message}")
