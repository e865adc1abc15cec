"""Clauses for whole layers that add adapters' updates by themselves, see docs/adapters.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from framework.testing.conformance.cases import Case, expect
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.suites.kernel_base import STEP, Bound
from framework.testing.conformance.suites.kernel_low_rank import I64, KernelLowRank, Update
from framework.testing.conformance.suites.kernel_reference import F64, Truth, floor_of

MAPS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "layer_input": {"weight": ("features", "out_features")},
    "layer_output": {
        "output": ("in_features", "features"),
        "gate_up": ("features", "both"),
        "down": ("intermediate", "features"),
    },
}
"""Of each operator the linear maps in it, and the sizes of what goes in and comes out."""
SLACK = 8.0
"""By how much the errors of a map and of its update may add up on their way through a layer."""


class KernelUpdated(KernelLowRank):
    """Of the attribute `updated` of a call, where it has one."""

    @clause(
        "KERN-111",
        "low rank: a layer adds the updates of each of its maps, to the rows that are named",
        needs="low_rank",
        of=("prepare",),
    )
    def layers_are_updated(self) -> None:
        served = sorted({query.op for query in self.served()} & set(MAPS))
        for case in self.cases(3 * len(served)):
            own = self.new()
            bound = self.bind(case, self.use(case, served[case.index % len(served)]), own)
            call = getattr(bound.prepared.call, "updated", None)
            if call is not None:
                sizes = bound.query.sizes
                for name, (inputs, outputs) in MAPS[bound.query.op].items():
                    case.note(op=bound.query.op, map=name)
                    update = self.update(case, own, sizes[inputs], sizes[outputs])
                    for at in self.places(case, 7):
                        self._check_layer(case, bound, call, (name, update, at))

    def _check_layer(
        self,
        case: Case,
        bound: Bound,
        call: Callable[..., Any],
        given: tuple[str, Update, I64 | None],
    ) -> None:
        (name, update, at), query = given, bound.query
        x = self.x(case, query, 7)
        chosen = np.arange(len(x)) if at is None else at
        updates = {name: [(update.call, self.ids(query, at))]}
        found = self.read(query, call(*self.arguments(query, x), updates))
        plain = self.read(query, self.call(bound, x))
        expect(found.shape == plain.shape, "another shape than without updates", found=found.shape)
        rest = np.setdiff1d(np.arange(len(x)), chosen)
        expect(
            np.array_equal(found[rest], plain[rest]) or not bound.answer.row_independent,
            f"an update of {name!r} changes rows that have none",
        )
        weight = bound.weights[name]
        truth = self._truth(bound, x[chosen], {name: weight + update.product})
        wide = self._truth(bound, x[chosen], {name: np.abs(weight) + np.abs(update.product)})
        error = SLACK * max(bound.answer.error, update.answer.error)
        allowed = error * (truth.terms + wide.terms) + STEP.get(query.dtype, 0.0)
        wrong = ~(np.abs(found[chosen] - truth.values) <= allowed)
        expect(
            not wrong.any(),
            f"with an update of {name!r} {int(wrong.sum())} of {wrong.size} elements are wrong",
            expected=truth.values[wrong][:3],
            found=found[chosen][wrong][:3],
        )

    def _truth(self, bound: Bound, x: F64, weights: Mapping[str, F64]) -> Truth:
        """The reference, with some other weights."""
        query = bound.query
        return self.references[query.op](
            x,
            {**bound.weights, **weights},
            {**bound.constants, **query.sizes},
            query.traits,
            floor_of(bound.answer),
        )
