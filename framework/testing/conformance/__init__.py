"""The conformance kit: prove that a plugin keeps the promises of its contract.

Three faces reach the same checks: a subclass of a suite in your own tests, the command
`framework plugins conform KIND:NAME`, and `check()`.
"""

from framework.testing.conformance.cases import (
    TOLERANCES,
    Case,
    expect,
    expect_close,
    expect_raises,
)
from framework.testing.conformance.catalogue import suite_of
from framework.testing.conformance.check import check
from framework.testing.conformance.clauses import Clause, Layer, clause, clauses_of
from framework.testing.conformance.outcomes import NoDevice, Outcome, Status, Violation
from framework.testing.conformance.report import Report
from framework.testing.conformance.suite import Suite

__all__ = [
    "TOLERANCES",
    "Case",
    "Clause",
    "Layer",
    "NoDevice",
    "Outcome",
    "Report",
    "Status",
    "Suite",
    "Violation",
    "check",
    "clause",
    "clauses_of",
    "expect",
    "expect_close",
    "expect_raises",
    "suite_of",
]
