"""Of what goes when nobody holds it, clauses judge what they made themselves."""

from __future__ import annotations

import gc
import sys

import pytest

from framework.contracts.scheduling_policy import SchedulingPolicy
from framework.testing.conformance import Suite, check
from tests.conformance.mutants import IN_PROCESS, assert_fails


class Good(SchedulingPolicy):
    """By arrival."""

    def keys(self, requests):
        return requests.arrival.astype(float)


class HoldsItself(Good):
    """By arrival; only a collection ends it."""

    def __init__(self, options=None):
        super().__init__(options)
        self.own = self

    def __del__(self):
        raise RuntimeError("not yet")


@pytest.fixture
def no_collections():
    """But those that are asked for."""
    gc.disable()
    yield
    gc.enable()


def test_a_collection_ends_instances_and_what_others_left_is_not_judged(
    monkeypatch, no_collections
):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    HoldsItself()
    only_this = {"suite": Suite, "only": ["ALL-024"], "layers": IN_PROCESS}
    assert not check(Good, **only_this).failures
    assert_fails(check(HoldsItself, **only_this), "ALL-024")
    assert not told
    gc.collect()
    assert told, "what was left behind is there for others to find"
