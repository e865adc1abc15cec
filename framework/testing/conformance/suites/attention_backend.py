"""The suite for attention backends: answers, layouts, and attention beside a reference."""

from __future__ import annotations

from typing import ClassVar

from framework.testing.conformance.suite import Suite
from framework.testing.conformance.suites.attention_answers import AnswerClauses
from framework.testing.conformance.suites.attention_graphs import GraphClauses
from framework.testing.conformance.suites.attention_groups import GroupClauses
from framework.testing.conformance.suites.attention_pairs import CAPABILITIES, PairClauses


class AttentionBackendSuite(AnswerClauses, PairClauses, GroupClauses, GraphClauses, Suite):
    """Seeded random shapes against attention written out in numpy, in float64.

    It is run on the first platform that is ready and for which a plain query is supported, with
    the tensors of that query's API; both need their plugins installed (`framework-plugin-torch`
    has the bridge to torch).

    Class attributes, beside those of `Suite`:
        tensor_api: whose tensors to use.
        platform: name of the platform to use.
        effort: multiplies the random cases; 1 takes seconds, 20 is for the night.
    """

    kind = "attention_backend"
    ordinary = ("inputs_stay",)
    capabilities = CAPABILITIES
    tensor_api: ClassVar[str] = "torch"
    platform: ClassVar[str | None] = None
    effort: ClassVar[float] = 1.0
