"""One broken scheduling policy for each clause of its suite; those that exist pass it."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from framework.contracts.scheduling_policy import SchedulingPolicy
from framework.core.fair_queueing import FairQueueing
from framework.core.policies import FirstComeFirstServed
from framework.testing.conformance import check
from framework.testing.conformance.suites.scheduling_policy import SchedulingPolicySuite
from framework.testing.harness import Harness
from tests.conformance.fake_time import spend, timed
from tests.conformance.mutants import (
    IN_PROCESS,
    assert_caught,
    assert_fails,
    breaks,
    mutants_of,
    uncovered,
    unpaired,
)

SHOWN_IN_A_RUN = ("POL-020", "POL-021")
SHAPES = ("POL-001", "POL-002", "POL-004", "POL-006", "POL-008", "POL-010", "POL-011", "POL-013")


def in_an_engine(requests):
    """Its tenants come and go; elsewhere they are a tuple."""
    return not isinstance(requests.tenant_names, tuple)


class Plain(SchedulingPolicy):
    """The longest wait first; its keys are asked for in every step."""

    def keys(self, requests):
        return requests.arrived_at - requests.now


@breaks("POL-001", *SHAPES, "POL-003", *SHOWN_IN_A_RUN)
class Integers(Plain):
    """Keys of another type."""

    def keys(self, requests):
        return requests.arrival


@breaks("POL-002")
class Overflows(Plain):
    """Fine for small numbers only."""

    def keys(self, requests):
        with np.errstate(over="ignore"):
            return super().keys(requests) + np.exp(requests.prompt / 1000.0)


@breaks("POL-003")
class NeedsOne(Plain):
    """Fails when there is nobody."""

    def keys(self, requests):
        return super().keys(requests) + 0.0 * requests.arrival.min()


@breaks("POL-004")
class ByPlace(Plain):
    """Orders requests as they are given."""

    def keys(self, requests):
        return np.arange(len(requests), dtype=float)


@breaks("POL-005", "POL-006", *SHOWN_IN_A_RUN)
class Changes(Plain):
    """Works in the arrays of the engine."""

    def keys(self, requests):
        requests.prompt.sort()
        return super().keys(requests)


@breaks("POL-006", "POL-008", "POL-011")
class CountsCalls(Plain):
    """Rotates with each call."""

    calls = 0

    def keys(self, requests):
        self.calls += 1
        return ((requests.arrival + self.calls) % 7).astype(float)


@breaks("POL-007", "POL-022")
class FixedByCompany(Plain):
    """A rank among those that are asked about."""

    keys_are_fixed: ClassVar[bool] = True

    def keys(self, requests):
        return np.argsort(np.argsort(requests.arrival)).astype(float)


@breaks("POL-007")
class FixedByTime(Plain):
    """Keys that would have to be asked for again."""

    keys_are_fixed: ClassVar[bool] = True


@breaks("POL-008")
class Remembers(Plain):
    """Tenants come first once they were seen in a large group."""

    known = 0

    def keys(self, requests):
        if len(requests) == 20:
            self.known = self.known or int(requests.arrival.sum())
        return (requests.arrival + self.known) % 11.0


@breaks("POL-009")
class NeedsWork(FairQueueing):
    """Fails when a step computed nothing."""

    def served(self, requests, tokens):
        super().served(requests, tokens)
        tokens.max()


@breaks("POL-010", *SHOWN_IN_A_RUN)
class KnowsItsTenants(Plain):
    """Keeps a table as wide as it was at first."""

    table = None

    def keys(self, requests):
        if self.table is None:
            self.table = np.zeros(len(requests.tenant_names) or 3)
        return super().keys(requests) + self.table[requests.tenant]


@breaks("POL-011")
class Shares(Plain):
    """One account for all instances."""

    total: ClassVar[list[int]] = [0]

    def keys(self, requests):
        return (requests.arrival + self.total[0]) % 13.0

    def served(self, requests, tokens):
        self.total[0] += int(tokens.sum())


@breaks("POL-012")
class Slow(Plain):
    """Looks at requests one by one."""

    def keys(self, requests):
        if len(requests) >= 10_000:
            spend(1.0)
        return super().keys(requests)


@breaks("POL-013")
class ByIndex(Plain):
    """An account by index, which another tenant may have tomorrow."""

    def __init__(self, options=None):
        super().__init__(options)
        self.used = np.zeros(99)

    def keys(self, requests):
        return super().keys(requests) + self.used[requests.tenant]

    def served(self, requests, tokens):
        np.add.at(self.used, requests.tenant, tokens)


@breaks("POL-020", "POL-021")
class OnlyWaiting(Plain):
    """Was never shown a request that runs."""

    def keys(self, requests):
        if in_an_engine(requests) and (requests.computed > 0).any():
            raise RuntimeError("it runs")
        return super().keys(requests)


@breaks("POL-021")
class OnlyNewcomers(Plain):
    """Takes whoever waits for a newcomer."""

    def keys(self, requests):
        grown = (requests.computed == 0) & (requests.known > requests.prompt)
        if in_an_engine(requests) and grown.any():
            raise RuntimeError("it has output already")
        return super().keys(requests)


@breaks("POL-022")
class LastComeFirstServed(Plain):
    """As long as others come, the first ones wait."""

    def keys(self, requests):
        return -requests.arrival.astype(float)


MUTANTS = mutants_of(list(globals().values()))


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_caught(mutant):
    assert_caught(mutant, SchedulingPolicySuite)


def test_every_clause_has_a_mutant_and_every_capability_both_sides():
    assert uncovered(SchedulingPolicySuite, MUTANTS) == set()
    assert unpaired(SchedulingPolicySuite) == set()


@pytest.mark.parametrize("name", ["fcfs", "priority", "fair"])
def test_the_built_in_policies_conform(name):
    report = check(f"scheduling_policy:{name}")
    assert not report.failures, report.text()


def test_strict_priority_lets_others_wait_for_ever_and_conforms_all_the_same():
    report = check(
        "scheduling_policy:priority", options={"ageing_seconds": None}, layers=IN_PROCESS
    )
    assert_fails(report, "POL-022")
    assert report.conformant


@pytest.mark.parametrize("policy", [FirstComeFirstServed, FairQueueing])
def test_the_runs_are_under_the_pressure_that_their_clauses_speak_of(policy, monkeypatch):
    made = []
    monkeypatch.setattr(Harness, "check_empty", lambda one: made.append(one.core.stats))
    report = check(policy, suite=timed(SchedulingPolicySuite), only=("POL-021",), layers=IN_PROCESS)
    assert report.conformant
    assert sum(stats.preemptions > 0 for stats in made) >= 4
