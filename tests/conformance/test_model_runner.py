"""One broken runner for each clause of the suite; the scripted one and that of torch pass it."""

from __future__ import annotations

import pytest

from framework.plugins.registry import PluginRegistry
from framework.testing import ScriptedRunner
from framework.testing.conformance import check
from framework.testing.conformance.suites.model_runner import ModelRunnerSuite
from tests.conformance import runner_feature_mutants, runner_mutants, runner_step_mutants
from tests.conformance.mutants import (
    IN_PROCESS,
    assert_caught,
    mutants_of,
    uncovered,
    unpaired,
)
from tests.conformance.runner_feature_mutants import Lenient, Masking

MODULES = (runner_mutants, runner_step_mutants, runner_feature_mutants)
MUTANTS = [mutant for module in MODULES for mutant in mutants_of(vars(module).values())]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_caught(mutant):
    assert_caught(mutant, ModelRunnerSuite)


def test_every_clause_has_a_mutant_and_every_capability_both_sides():
    assert uncovered(ModelRunnerSuite, MUTANTS) == set()
    assert unpaired(ModelRunnerSuite) == set()


@pytest.mark.parametrize("runner", [ScriptedRunner, Lenient, Masking])
def test_the_scripted_runner_conforms(runner):
    report = check(runner, suite=ModelRunnerSuite, layers=IN_PROCESS)
    assert not report.failures, report.text()


@pytest.mark.skipif(not PluginRegistry().records("model_runner"), reason="no runner is installed")
def test_the_torch_runner_conforms():
    """On a tiny decoder with made-up weights: 39 clauses in some seconds, most of them torch's."""
    report = check("model_runner:torch")
    assert not report.failures, report.text()
