"""One broken executor for each clause of its own; beside its plugin, `in_process` passes them.

What executors share with runners is checked by the same methods; `runner_mutants` and its like
have mutants for those.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from framework.contracts.step import NOTHING_LATE
from framework.errors import PluginError, SelectionError
from framework.testing import ScriptedRunner
from framework.testing.conformance import clauses_of
from framework.testing.conformance.suites.executor import ExecutorSuite
from framework.testing.conformance.suites.model_runner import ModelRunnerSuite
from framework_executors.in_process import InProcessExecutor
from tests.conformance.mutants import assert_caught, breaks, mutants_of, uncovered, unpaired


@breaks("EXEC-001", *(f"EXEC-00{n}" for n in range(2, 10)))
class HasItsOwn(InProcessExecutor):
    """Makes a runner that nobody has asked for."""

    def load(self, context):
        self._runner = ScriptedRunner()
        return self._runner.load(context)


@breaks("EXEC-002")
class NamesNothing(InProcessExecutor):
    """Something went wrong."""

    def load(self, context):
        try:
            return super().load(context)
        except PluginError as error:
            if "no_such" in str(error):
                raise PluginError("there is no such thing") from None
            raise


@breaks("EXEC-003")
class TakesTheLast(InProcessExecutor):
    """The candidate at the end of the list."""

    def load(self, context):
        found = context.registry.candidates("model_runner")
        if found and "model_runner" not in context.choices:
            context = replace(context, choices={"model_runner": found[-1].name})
        return super().load(context)


@breaks("EXEC-004", "EXEC-009")
class TakesOneForGranted(InProcessExecutor):
    """As if one were always installed."""

    def load(self, context):
        if "model_runner" not in context.choices:
            name = context.registry.candidates("model_runner")[0].name
            context = replace(context, choices={"model_runner": name})
        return super().load(context)


@breaks("EXEC-009")
class SaysThatNoneIsInstalled(InProcessExecutor):
    """Looks at the candidates, and not at what keeps others from being some."""

    def load(self, context):
        if not context.choices and not context.registry.candidates("model_runner"):
            raise SelectionError("no model runner is installed", found="none")
        return super().load(context)


@breaks("EXEC-005")
class BindsTwice(InProcessExecutor):
    """To be on the safe side."""

    def bind(self, plan):
        super().bind(plan)
        super().bind(plan)


@breaks("EXEC-006")
class AddsUp(InProcessExecutor):
    """The pages of all ranks together, where the least of them counts."""

    def load(self, context):
        info = super().load(context)
        return replace(info, bytes_free=2 * info.bytes_free)


@breaks("EXEC-007")
class ForgetsTheFailed(InProcessExecutor):
    """Keeps a rank once it has loaded."""

    def load(self, context):
        try:
            return super().load(context)
        except Exception:
            self._runner = None
            raise


@breaks("EXEC-008")
class ComesTooEarly(InProcessExecutor):
    """Ends steps without what came late."""

    def finish(self, ticket, late):
        return super().finish(ticket, NOTHING_LATE)


@breaks("EXEC-008")
class SendsMasksOnly(InProcessExecutor):
    """What participants attach stays behind."""

    def finish(self, ticket, late):
        return super().finish(ticket, replace(late, attachments={}))


@breaks("ALL-030")
class SetsTheEnvironment(InProcessExecutor):
    """As for a process of its own."""

    def load(self, context):
        os.environ["LOCAL_RANK"] = "0"
        return super().load(context)


MUTANTS = mutants_of(list(globals().values()))


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_caught(mutant):
    assert_caught(mutant, ExecutorSuite)


def test_every_clause_has_a_mutant_and_every_capability_both_sides():
    shared = uncovered(ModelRunnerSuite, [])
    assert uncovered(ExecutorSuite, MUTANTS) == shared
    assert {c.method for c in clauses_of(ExecutorSuite) if c.id in shared} == {
        c.method for c in clauses_of(ModelRunnerSuite) if c.id in shared
    }
    assert unpaired(ExecutorSuite) == set()
