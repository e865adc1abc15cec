"""The suite of attention backends: it catches broken ones, and finds no fault in ours."""

from __future__ import annotations

import pytest

from framework.contracts.attention_backend import AttentionSupported
from framework.testing.conformance import Status, check
from framework.testing.conformance.suites.attention_backend import AttentionBackendSuite
from tests.conformance import attention_graph_mutants, attention_mutants, attention_pairs
from tests.conformance.attention_changed import Changed, rejected
from tests.conformance.mutants import IN_PROCESS, assert_caught, assert_fails, uncovered, unpaired
from tests.conformance.sites import put

MUTANTS = [
    *attention_mutants.MUTANTS,
    *attention_pairs.MUTANTS,
    *attention_graph_mutants.MUTANTS,
]


class QuickSuite(AttentionBackendSuite):
    effort = 0.25


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.__mutant__[1].clause}-{m.__name__}")
def test_mutants_are_caught(mutant):
    assert_caught(mutant, QuickSuite)


SUBCLASS = '''
from framework_sdpa.backend import SdpaBackend

class P(SdpaBackend):
    """Sdpa."""

    def answer(self, query):
        {body}
        return super().answer(query)
'''


def test_an_import_while_answering_is_caught(monkeypatch, tmp_path):
    name = put(monkeypatch, tmp_path, "attention_backend", SUBCLASS.format(body="import torch"))
    report = check(name, suite=QuickSuite, only=("ATTN-009",))
    assert_fails(report, "ATTN-009")


def test_a_claim_to_know_what_is_not_written_is_caught(monkeypatch, tmp_path):
    code = SUBCLASS.format(body="pass")
    name = put(monkeypatch, tmp_path, "attention_backend", code, knows='"1000.0"')
    report = check(name, suite=QuickSuite, only=("ATTN-008",))
    assert_fails(report, "ATTN-008")


def test_a_backend_for_another_platform_is_skipped():
    class ElsewhereOnly(Changed):
        """Sdpa, on a platform that is not here."""

        def answered(self, query, answer):
            return rejected(query, "platform")

    report = check(ElsewhereOnly, suite=QuickSuite, only=("ATTN-010", "ATTN-030"))
    assert report.conformant
    assert {outcome.status for outcome in report.outcomes} == {Status.NO_DEVICE}


def test_what_no_clause_tries_is_told_where_it_is_claimed():
    class ClaimsMore(Changed):
        """Sdpa, and what it says."""

        def answered(self, query, answer):
            claims = query.cascade or isinstance(answer, AttentionSupported)
            return AttentionSupported() if claims else answer

    report = check(ClaimsMore, suite=QuickSuite, only=("ATTN-001",), layers=IN_PROCESS)
    assert report.unproven == ("cascade", "connector", "tensor_parallel")
    line = "claimed, and tried by no clause: cascade, connector, tensor_parallel\n"
    assert line in report.text()
    assert report.as_dict()["unproven"] == list(report.unproven)


def test_each_clause_has_a_mutant_and_each_capability_a_pair():
    assert uncovered(AttentionBackendSuite, MUTANTS) == {"ATTN-008", "ATTN-009"}
    assert not unpaired(AttentionBackendSuite)


def test_sdpa_conforms():
    report = check("attention_backend:sdpa")
    assert report.conformant
    assert not report.failures, report.text()


@pytest.mark.long
def test_sdpa_conforms_over_many_cases():
    class Thorough(AttentionBackendSuite):
        effort = 20

    for seed in range(2):
        report = check("attention_backend:sdpa", suite=Thorough, seed=seed)
        assert not report.failures, report.text()
