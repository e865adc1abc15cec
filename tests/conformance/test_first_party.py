"""Every first-party plugin passes the kit; of kinds with a suite it does so beside the mutants."""

from __future__ import annotations

import pytest

from framework.plugins.policy import Policy
from framework.plugins.registry import PluginRegistry
from framework.testing.conformance import Suite, check, suite_of

OURS = [record for record in PluginRegistry(policy=Policy()).records() if record.first_party]
COMMON = [record for record in OURS if suite_of(record.kind) is Suite]


def test_there_are_plugins_of_kinds_without_a_suite_of_their_own():
    kinds = {record.kind for record in COMMON}
    assert {"model", "weight_loader", "tokenizer"} <= kinds


@pytest.mark.parametrize("record", COMMON, ids=lambda record: record.key)
def test_a_first_party_plugin_conforms(record):
    report = check(record.key)
    assert report.conformant, report.text()
    assert not report.failures, report.text()
