"""Clauses for what a kernel may be asked beside the operator."""

from __future__ import annotations

import numpy as np

from framework.contracts.kernel import KernelQuery, KernelSupported
from framework.testing.conformance.cases import Case, expect
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.outcomes import Violation
from framework.testing.conformance.suites.kernel_answers import KernelAnswers
from framework.testing.conformance.suites.kernel_reference import floor_of
from framework.testing.conformance.suites.place import bridge_to
from framework.testing.conformance.suites.queries import but, check_rejected

ROWS = (0, 1, 2, 3, 5, 8, 13, 300)
"""Of batches: none, few as in decoding, and many as in a prompt, where kernels go another way."""


class KernelWishes(KernelAnswers):
    """Rows that do not depend on others, weights that are kept once, weights without loss."""

    @clause(
        "KERN-104",
        "where rows are independent, they are so bit for bit",
        needs="row_independent",
        of=("prepare",),
    )
    def rows_are_independent(self) -> None:
        for case in self.cases(6):
            query = self._wishing(case, "row_independent")
            bound = self.bind(case, query)
            expect(
                bound.answer.row_independent,
                "asked for, and neither promised nor rejected",
                expected="KernelSupported(row_independent=True), or Rejected for that field",
                found=bound.answer,
            )
            x = self.x(case, query, max(ROWS))
            whole = self.read(query, self.call(bound, x))
            for rows in (count for count in ROWS if count):
                first = int(case.rng.integers(0, max(ROWS) - rows + 1))
                found = self.read(query, self.call(bound, x[first : first + rows]))
                same = np.array_equal(found, whole[first : first + rows])
                expect(same, f"rows {first} to {first + rows} differ from those beside others")

    @clause(
        "KERN-204",
        "who rejects independent rows promises them nowhere, and says so",
        lacks="row_independent",
        of=("answer",),
    )
    def dependent_rows_are_told(self) -> None:
        for query in self.served():
            promised = self.new().answer(query).row_independent
            expect(not promised, "rejected when asked for, promised when not")
            check_rejected(self.new(), but(query, row_independent=True), "row_independent")

    @clause(
        "KERN-105",
        "weights that others read, too, are kept as they are, or given row by row",
        needs="keep_once",
        of=("prepare",),
    )
    def shared_weights_are_kept(self) -> None:
        for case in self.cases(4):
            query = self._wishing(case, "keep_once")
            bound = self.bind(case, query)
            prepared = bound.prepared
            if prepared.keeps_weights:
                expect(prepared.num_bytes == 0, "shared weights are kept twice", found=prepared)
                continue
            rows = prepared.rows
            if rows is None:
                raise Violation(f"shared weights are gone\n  found:    {prepared}")
            weight, answer = bound.weights["weight"], bound.answer
            ids = case.rng.integers(0, len(weight), 7)
            bridge = bridge_to(self.target.registry, query.tensor_api)
            given = rows(bridge.tensor(ids, "int64", query.device))
            found, told = self.read(query, given), weight[ids]
            off = np.abs(found - told)
            near = off <= answer.error * floor_of(answer).weight(told)
            expect(bool(near.all()), "a row is not that of the weight", found=found[:2, :4])

    @clause("KERN-205", "shared weights: the reason names them", lacks="keep_once", of=("answer",))
    def shared_weights_are_rejected(self) -> None:
        for query in self.served():
            check_rejected(self.new(), but(query, keep_once=True), "keep_once")

    @clause(
        "KERN-106",
        "where nothing of the weights may be lost, nothing is",
        needs="lossless",
        of=("prepare",),
    )
    def weights_are_kept_whole(self) -> None:
        """Weights that only their own type holds, met by rows with a single one."""
        for case in self.cases(3):
            query = self._wishing(case, "lossless")
            if query.op not in ("linear", "logits"):
                continue
            query = but(query, traits=frozenset())
            weights, _ = self.draw(case, query)
            bound = self.bind(case, query, weights=weights)
            weight = bound.weights["weight"]
            found = self.read(query, self.call(bound, np.eye(weight.shape[1])))
            expect(np.array_equal(found, weight.T), "weights are rounded", found=found[0, :4])

    @clause("KERN-206", "losses: the reason names them", lacks="lossless", of=("answer",))
    def losses_are_told(self) -> None:
        """One that does not know the wish is not asked."""
        for query in self.served() if self.knows(1, 1) else ():
            check_rejected(self.new(), but(query, lossless=True), "lossless")

    def _wishing(self, case: Case, wish: str) -> KernelQuery:
        """A random use that is supported with the wish."""
        query = self.use(case)
        asked = [but(q, **{wish: True}) for q in (query, *self.served())]
        own = self.new()
        return next(q for q in asked if isinstance(own.answer(q), KernelSupported))
