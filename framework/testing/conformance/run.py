"""Runs the clauses of a suite on one plugin, layer by layer."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

import framework
from framework.plugins.blame import told
from framework.plugins.options import secrets_in, without
from framework.testing.conformance import bounds
from framework.testing.conformance.bounds import bounded, unending
from framework.testing.conformance.cases import Case
from framework.testing.conformance.clauses import Clause, Layer, check_of, clauses_of
from framework.testing.conformance.outcomes import (
    NoDevice,
    Outcome,
    Status,
    Unanswered,
    Violation,
)
from framework.testing.conformance.places import innermost
from framework.testing.conformance.process import process_restored
from framework.testing.conformance.reproduce import command
from framework.testing.conformance.suite import Suite
from framework.testing.conformance.suites.place import shared_rows
from framework.testing.conformance.target import Target

CLAUSE_BUDGET = 120.0
"""Seconds after which a clause counts as hanging."""

T = TypeVar("T")
Watch = Callable[[Clause, Outcome | None], None]


class Run:
    """One suite on one target; each clause is run at most once.

    layers: those to be run; the others are "not run".  only_case: the one random case to run.
    slowness: in place of the suite's.  watch: is told of each clause before it is run, and
    of the outcome.  spoilt: a clause was broken off, so that this process is no place for others.
    """

    def __init__(
        self,
        suite: type[Suite],
        target: Target,
        *,
        seed: int | None = None,
        only_case: int | None = None,
        layers: Collection[Layer] = tuple(Layer),
        budget: float = CLAUSE_BUDGET,
        slowness: float | None = None,
        watch: Watch = lambda clause, outcome: None,
    ) -> None:
        self.suite = suite
        self.target = target
        self.clauses = clauses_of(suite)
        self._release = framework.__version__  # read from metadata each time
        self.seed = suite.seed if seed is None else seed
        self._only_case = only_case
        self.layers = frozenset(layers)
        self._budget = budget
        self._slowness = suite.slowness if slowness is None else slowness
        self._watch = watch
        self._outcomes: dict[str, Outcome] = {}
        self._declared: frozenset[str] | None = None
        self.spoilt = False
        self.unknown = sorted(set(suite.expected_failures) - {c.id for c in self.clauses})

    @property
    def slowness(self) -> float:
        """By which budgets were multiplied."""
        return self._slowness

    @property
    def limit(self) -> float:
        """Seconds that a clause may take."""
        return self._budget * self._slowness

    def outcome(self, clause_id: str) -> Outcome:
        """The outcome of one clause; layers before its own are run first.

        Raises KeyError for a clause that the suite does not have.
        """
        clause = next((c for c in self.clauses if c.id == clause_id), None)
        if clause is None:
            raise KeyError(clause_id)
        if clause_id not in self._outcomes:
            broken = self._broken_before(clause)
            self._outcomes[clause_id] = self._settle(clause, broken)
        return self._outcomes[clause_id]

    def broken(self) -> list[Outcome]:
        """Of the clauses settled so far, those that keep later layers from being run."""
        settled = self._outcomes.values()
        failed = [o for o in settled if o.status is Status.FAILED]
        return [o for o in failed if o.clause.required(self._release)]

    def adopt(self, outcomes: Mapping[str, Outcome]) -> None:
        """Take outcomes of clauses that another process ran; they are not run again."""
        self._outcomes.update(outcomes)

    def ended(self, clause_id: str, message: str) -> Outcome:
        """The outcome of a clause that took the process that ran it with it, for `adopt`."""
        clause = next(c for c in self.clauses if c.id == clause_id)
        line = self._line(clause, None)
        failed = Outcome(clause=clause, status=Status.FAILED, message=message, reproduce=line)
        return self._strictly(clause, failed)

    def declared(self) -> frozenset[str]:
        """Capabilities that the plugin declares.  Raises what the plugin raises."""
        if self._declared is None:
            self._declared = self._ask(lambda suite: suite.declared())
        return self._declared

    def unproven(self) -> tuple[str, ...]:
        """What it claims and no clause tries.  Raises what the plugin raises."""
        return self._ask(lambda suite: suite.unproven())

    def _ask(self, question: Callable[[Suite], T]) -> T:
        suite = self._instance(self.clauses[0])
        try:
            return question(suite)
        finally:
            _close(suite)

    def _broken_before(self, clause: Clause) -> Outcome | None:
        """What keeps a clause from being run."""
        for each in self.clauses:
            if each.layer < clause.layer and each.required(self._release):
                outcome = self.outcome(each.id)
                if outcome.status is Status.FAILED and each.id not in clause.explains:
                    return outcome
        return None

    def _settle(self, clause: Clause, broken: Outcome | None) -> Outcome:
        if clause.layer not in self.layers:
            return Outcome(clause=clause, status=Status.NOT_RUN, message="not asked for")
        if clause.layer is Layer.IMPORT and not self.target.importable:
            return Outcome(
                clause=clause,
                status=Status.NOT_RUN,
                message=f"{self.target.record.value} is a class of this process only",
            )
        if broken is not None:
            what = f"the {broken.clause.layer.name.lower()} layer broke at {broken.clause.id}"
            return Outcome(clause=clause, status=Status.NOT_RUN, message=what)
        self._watch(clause, None)
        outcome = self._strictly(clause, self._check(clause))
        self._watch(clause, outcome)
        return outcome

    def _strictly(self, clause: Clause, outcome: Outcome) -> Outcome:
        """An expected failure must fail; where the suite names none, nothing changes."""
        reason = self.suite.expected_failures.get(clause.id)
        if reason is None or outcome.status is Status.NOT_RUN:
            return outcome
        if outcome.status is Status.FAILED:
            first, _, _ = outcome.message.partition("\n")
            return Outcome(
                clause=clause,
                status=Status.EXPECTED_FAILURE,
                message=f"{reason} ({first})",
                seconds=outcome.seconds,
            )
        return Outcome(
            clause=clause,
            status=Status.FAILED,
            message=f"it is listed in expected_failures ({reason}), and is {outcome.status}: "
            "take it off the list",
            seconds=outcome.seconds,
        )

    def _check(self, clause: Clause) -> Outcome:
        check = check_of(self.suite, clause)
        if check is None:
            return Outcome(
                clause=clause,
                status=Status.FAILED,
                message=f"{self.suite.__name__} covers or deletes {clause.method}; list the "
                "clause in expected_failures instead",
            )
        started, rang = time.perf_counter(), list[float]()
        suite = self._instance(clause)
        status, message = Status.PASSED, ""
        try:
            # This may import the library of the tensors, which a clause that is broken off in it
            # would leave half there.
            rows = shared_rows(self.target.registry, getattr(suite, "tensor_api", None))
            with bounded(self.limit) as rang, unending(), process_restored(rows):
                skipped = self._undeclared(clause)
                if skipped:
                    return Outcome(clause=clause, status=Status.UNDECLARED, message=skipped)
                check(suite)
                _close(suite)
        except KeyboardInterrupt:
            raise
        except NoDevice as missing:
            status, message = Status.NO_DEVICE, str(missing)
        except Unanswered as why:
            status, message = Status.NOT_RUN, str(why)
        except BaseException as error:  # an exit is the plugin's failure, too
            status, message = Status.FAILED, self._without_secrets(_describe(error))
        # An import is tried in a process of its own.
        self.spoilt = self.spoilt or bool(rang and clause.layer > Layer.IMPORT)
        return Outcome(
            clause=clause,
            status=status,
            message=message,
            reproduce=self._line(clause, suite.case) if status is Status.FAILED else "",
            seconds=time.perf_counter() - started,
        )

    def _without_secrets(self, message: str) -> str:
        """A report is shown to others."""
        loaded = self.target.record.cls
        model = loaded.Options if loaded is not None else None
        return without(message, secrets_in(model, self.target.options))

    def _undeclared(self, clause: Clause) -> str:
        missing = [name for name in clause.needs if name not in self.declared()]
        if missing:
            return f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not declared"
        if clause.lacks and clause.lacks in self.declared():
            return f"{clause.lacks} is declared"
        return ""

    def _instance(self, clause: Clause) -> Suite:
        suite = self.suite()
        suite.target, suite.clause, suite.only_case = self.target, clause, self._only_case
        suite.made = []
        suite.__dict__.update(seed=self.seed, slowness=self._slowness)
        return suite

    def _line(self, clause: Clause, case: Case | None) -> str:
        settings: dict[str, object] = {}
        if case is not None:
            settings.update(seed=self.seed, only_case=case.index)
        if self._budget != CLAUSE_BUDGET:
            settings["budget"] = self._budget
        if self._slowness != Suite.slowness:
            settings["slowness"] = self._slowness
        line = f"reproduce: {command(self.suite, self.target, clause, settings)}"
        return f"{line}   # {case}" if str(case or "") else line


def _close(suite: Suite) -> None:
    while suite.made:
        suite.close(suite.made.pop())


def _describe(error: BaseException) -> str:
    if isinstance(error, Violation):
        return str(error)
    frames = [(f.filename, f.lineno or 0) for f in traceback.extract_tb(error.__traceback__)]
    if frames and frames[-1][0] == bounds.__file__:
        frames.pop()  # where the plugin was held back
    name, _, text = told(error).partition(": ")
    return f"{name}{innermost(frames)}: {text}"
