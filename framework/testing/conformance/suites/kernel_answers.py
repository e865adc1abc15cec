"""Clauses for what a kernel answers."""

from __future__ import annotations

from typing import Any

from framework.contracts.base import Rejected
from framework.contracts.kernel import KernelQuery
from framework.testing.conformance.cases import expect
from framework.testing.conformance.clauses import Layer, clause
from framework.testing.conformance.suites.kernel_base import KernelBase
from framework.testing.conformance.suites.queries import but, check_newer, check_rejected

UNKNOWN: dict[str, Any] = {
    "op": "unheard-of",
    "tensor_api": "unheard-of",
    "dtype": "unheard-of",
    "weight_dtype": "unheard-of",
    "quantization": "unheard-of",
    "traits": frozenset(("unheard-of",)),
}


def answer_some(kernel: Any) -> None:
    """Ask a few queries, as `framework explain` may; for the process that watches imports."""
    for op, sizes in (("linear", {"in_features": 16, "out_features": 8}), ("rms_norm", {})):
        query = KernelQuery(
            op=op,
            platform="cpu",
            device="cpu",
            dtype="float32",
            weight_dtype="float32",
            sizes=sizes or {"features": 16},
        )
        kernel.answer(query)


class KernelAnswers(KernelBase):
    """No tensor is needed."""

    @clause("KERN-009", "answering loads no heavy library", layer=Layer.IMPORT, of=("answer",))
    def answering_is_light(self) -> None:
        seen = self.trial(answer_some)
        expect(not seen.error, f"answering fails: {seen.error}")
        expect(not seen.heavy, "answering loads heavy libraries", found=", ".join(seen.heavy))
        started = seen.threads + seen.processes + seen.network
        expect(not started, "answering starts something", found="; ".join(started))

    @clause(
        "KERN-010",
        "it serves a plain use of an operator on a platform that is ready",
        layer=Layer.CONSTRUCT,
        of=("answer",),
    )
    def something_is_served(self) -> None:
        self.served()

    @clause("KERN-001", "equal queries get equal answers", of=("answer",))
    def answers_are_stable(self) -> None:
        own, asked = self.new(), self.all_queries()
        first = [own.answer(query) for query in asked]
        expect([own.answer(query) for query in asked] == first, "an answer changes")
        expect([self.new().answer(query) for query in asked] == first, "instances differ")

    @clause("KERN-002", "a reason names a field, and a mend", of=("answer",))
    def reasons_can_be_used(self) -> None:
        own, known = self.new(), set(KernelQuery.__dataclass_fields__)
        asked = [but(self.one(), **{field: value}) for field, value in UNKNOWN.items()]
        for query in [*asked, *self.all_queries()]:
            answer = own.answer(query)
            for reason in answer.reasons if isinstance(answer, Rejected) else ():
                expect(reason.field in known, "a reason names no field", found=reason.field)
                expect(reason.code and reason.remedy, "a reason without a code or a remedy")

    @clause("KERN-003", "values that it cannot know are rejected", of=("answer",))
    def unknown_values_are_rejected(self) -> None:
        for field, value in UNKNOWN.items():
            check_rejected(self.new(), but(self.one(), **{field: value}), field)

    @clause("KERN-004", "all reasons are given at once", of=("answer",))
    def all_reasons_are_given(self) -> None:
        query = but(self.one(), dtype="unheard-of", quantization="unheard-of")
        check_rejected(self.new(), query, "dtype")
        check_rejected(self.new(), query, "quantization")

    @clause(
        "KERN-005", "a query of a contract that it does not know is not supported", of=("answer",)
    )
    def newer_queries_are_rejected(self) -> None:
        check_newer(self.target, self.one())

    @clause("KERN-006", "its error says something", of=("answer",))
    def errors_are_bounds(self) -> None:
        for query in self.served():
            answer = self.new().answer(query)
            good = 0 <= answer.error < 0.5 and 0 <= answer.smallest < 1 and 0 <= answer.share < 0.1
            expect(good, "bounds that bound nothing", expected="error < 0.5", found=answer)
