"""Every first-party plugin passes the kit; of kinds with a suite it does so beside the mutants."""

from __future__ import annotations

import pytest

from framework.plugins.kinds import KINDS
from framework.plugins.policy import Policy
from framework.plugins.registry import PluginRegistry
from framework.testing.conformance import Suite, check, clauses_of, suite_of

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


def test_an_id_names_one_promise_over_all_kinds():
    """A report, an issue or a list of expected failures quotes the id alone."""
    found: dict[str, set[str]] = {}
    for kind in KINDS:
        for clause in clauses_of(suite_of(kind.name)):
            found.setdefault(clause.id, set()).add(clause.text)
    assert {name: texts for name, texts in found.items() if len(texts) > 1} == {}
