"""The suite for kernels: what they answer, and what they compute beside a reference."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np

from framework.contracts.base import Rejected
from framework.contracts.kernel import KernelSupported, Prepared
from framework.testing.conformance import garbage
from framework.testing.conformance.cases import expect
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.suites.kernel_base import Bound
from framework.testing.conformance.suites.kernel_rows import KernelRows
from framework.testing.conformance.suites.kernel_updated import KernelUpdated
from framework.testing.conformance.suites.kernel_wishes import ROWS, KernelWishes
from framework.testing.conformance.suites.place import (
    bridge_to,
    changes,
    keeping_defaults,
    odd_threads,
)
from framework.testing.conformance.suites.queries import but, check_rejected


class KernelSuite(KernelWishes, KernelRows, KernelUpdated):
    """Seeded random uses of the operators that a kernel serves, against numpy in float64.

    A result may be off by what the kernel's own answer says, and by no more.
    """

    ordinary = ("inputs_stay",)
    capabilities = (
        *("linear", "logits", "rms_norm", "layer_input", "layer_output", "low_rank"),
        *("row_independent", "keep_once", "lossless"),
    )

    def declared(self) -> frozenset[str]:
        """An operator, or a wish, with which `answer` supports some use."""
        own, served = self.new(), self.served()
        found = {query.op for query in served} & set(self.capabilities)
        wishes = ("row_independent", "keep_once", *(("lossless",) if self.knows(1, 1) else ()))
        for wish in wishes:
            if any(isinstance(own.answer(but(q, **{wish: True})), KernelSupported) for q in served):
                found.add(wish)
        return frozenset({*found, *(("low_rank",) if self.computes_updates() else ())})

    @clause("KERN-020", "a batch without rows gives no rows", of=("prepare",))
    def empty_batches_pass(self) -> None:
        for case in self.cases(3):
            bound = self.bind(case, self.use(case))
            self._compute(bound, self.x(case, bound.query, 0))

    @clause(
        "KERN-021", "the result has the type of the activations, and no gradient", of=("prepare",)
    )
    def results_have_their_type(self) -> None:
        served = self.served()[:9]
        for case in self.cases(len(served)):
            query = served[case.index]
            case.note(op=query.op, dtype=query.dtype)
            bound = self.bind(case, query)
            result = self.call(bound, self.x(case, query, 3))
            like = self.tensor(query, np.zeros(1))
            expect(
                result.dtype == like.dtype,
                "another type",
                expected=like.dtype,
                found=result.dtype,
            )
            # Of tensors that know of none there is nothing to ask.
            kept = getattr(result, "requires_grad", False)
            expect(not kept, "the result keeps a gradient, and memory with it")

    @clause("KERN-022", "activations and weights are only read", of=("prepare",))
    def inputs_stay(self) -> None:
        for case in self.cases(4):
            query = self.use(case)
            weights, _ = self.draw(case, query)
            bound = self.bind(case, query, weights=weights)
            x = self.x(case, query, 5)
            given = self.arguments(query, x)
            result = bound.prepared.call(*given)
            expect(all(result is not each for each in given), "the result is the argument")
            kept = np.concatenate([self.read(query, each) for each in given], axis=-1)
            expect(np.array_equal(kept, x), "activations were changed")
            for name, values in bound.weights.items():
                same = np.array_equal(self.read(query, weights[name]), values)
                expect(same, f"{name} was changed")

    @clause("KERN-023", "each result has memory of its own", of=("prepare",))
    def results_stay(self) -> None:
        for case in self.cases(3):
            bound = self.bind(case, self.use(case))
            x = self.x(case, bound.query, 3)
            first = self.call(bound, x)
            self.call(bound, x + 1)
            self.check(bound, x, first, "a result after the next call")

    @clause("KERN-024", "one instance serves several uses at a time", of=("prepare",))
    def uses_keep_apart(self) -> None:
        for case in self.cases(3):
            own = self.new()
            query = self.use(case)
            # Two layers of a model have the same use, and other weights.
            every = [self.bind(case, one, own) for one in (query, query, self.use(case))]
            for bound in (*every, *reversed(every)):
                self._compute(bound, self.x(case, bound.query, 4))

    @clause("KERN-025", "weights that it does not keep, it lets go", of=("prepare",))
    def weights_are_let_go(self) -> None:
        for case in self.cases(4):
            query = self.use(case)
            with garbage.of_its_own():
                weights, _ = self.draw(case, query)
                bound = self.bind(case, query, weights=weights)
                held = [weakref.ref(tensor) for tensor in weights.values()]
                packs, keeps = bound.answer.packs, bound.prepared.keeps_weights
                expect(packs != keeps, "answer and Prepared differ", expected=f"packs={not keeps}")
                del weights
                gc.collect()
            if not keeps:
                kept = [ref for ref in held if ref() is not None]
                expect(not kept, "it says that it keeps no weights, and holds them")
                own = bound.prepared.num_bytes
                expect(own > 0, "it says not how much its own form takes", found=own)
            self._compute(bound, self.x(case, query, 3))

    @clause("KERN-026", "weights out of the ordinary are rejected, or computed", of=("prepare",))
    def odd_weights_are_rejected_or_right(self) -> None:
        served = self.served()[:9]
        for case in self.cases(len(served)):
            query = served[case.index]
            case.note(op=query.op, dtype=query.dtype)
            weights, constants = self.draw(case, query)
            first = next(iter(weights))
            values = self.read(query, weights[first])
            values.flat[0] = 20000.0 if query.dtype == "float16" else 1e9
            weights[first] = self.tensor(query, values, query.weight_dtype)
            own = self.new()
            prepared = own.prepare(query, weights, constants)
            if isinstance(prepared, Rejected):
                continue
            expect(isinstance(prepared, Prepared), "neither Prepared nor Rejected", found=prepared)
            read = {name: self.read(query, tensor) for name, tensor in weights.items()}
            answer = own.answer(query)
            bound = Bound(
                query=query, answer=answer, prepared=prepared, weights=read, constants=constants
            )
            rng = np.random.default_rng(0)
            x = self.read(
                query, self.tensor(query, rng.uniform(0.01, 0.1, self.x(case, query, 3).shape))
            )
            self._compute(bound, x)

    @clause("KERN-027", "a row that is not finite spoils no other", of=("prepare",))
    def bad_rows_stay_alone(self) -> None:
        for case in self.cases(4):
            bound = self.bind(case, self.use(case))
            x = self.x(case, bound.query, 6)
            whole = self.read(bound.query, self.call(bound, x))
            x[2] = np.nan
            x[4, 0] = np.inf
            spoilt = self.read(bound.query, self.call(bound, x))
            rest = [0, 1, 3, 5]
            expect(np.array_equal(spoilt[rest], whole[rest]), "other rows change")
            expect(not np.isfinite(spoilt[2]).any(), "NaN is hidden", found=spoilt[2][:4])

    @clause("KERN-028", "rows of activations may lie apart in memory", of=("prepare",))
    def rows_may_lie_apart(self) -> None:
        for case in self.cases(4):
            bound = self.bind(case, self.use(case))
            for rows in (0, 1, 5):
                x = self.x(case, bound.query, rows)
                result = bound.prepared.call(*self.apart(bound.query, x))
                self.check(bound, x, result, f"the result for {rows} rows that lie apart")

    @clause("KERN-029", "the numbers of a result lie side by side", of=("prepare",))
    def results_are_whole(self) -> None:
        for case in self.cases(4):
            bound = self.bind(case, self.use(case))
            result = self.call(bound, self.x(case, bound.query, 5))
            # Of tensors that know of no other way there is nothing to ask.
            whole = getattr(result, "is_contiguous", lambda: True)()
            expect(whole, "the result is a view in another order", found=tuple(result.shape))

    @clause("KERN-030", "it changes no default of tensors", of=("prepare",))
    def defaults_stay(self) -> None:
        for case in self.cases(2):
            query = self.use(case)
            bridge = bridge_to(self.target.registry, query.tensor_api)
            with odd_threads(bridge), keeping_defaults(bridge) as before:
                bound = self.bind(case, query)
                self.call(bound, self.x(case, query, 3))
                changed = changes(before, bridge.defaults())
            expect(not changed, "defaults of the process change", found="; ".join(changed))

    @clause("KERN-101", "linear: as near to the truth as it says", needs="linear", of=("prepare",))
    def linear_is_right(self) -> None:
        self._right("linear")

    @clause("KERN-201", "linear: the reason names it", lacks="linear", of=("answer",))
    def linear_is_rejected(self) -> None:
        self._rejected("linear")

    @clause("KERN-102", "logits: as near to the truth as it says", needs="logits", of=("prepare",))
    def logits_are_right(self) -> None:
        self._right("logits")

    @clause("KERN-202", "logits: the reason names it", lacks="logits", of=("answer",))
    def logits_are_rejected(self) -> None:
        self._rejected("logits")

    @clause("KERN-103", "RMS norm: as near as it says", needs="rms_norm", of=("prepare",))
    def rms_norm_is_right(self) -> None:
        self._right("rms_norm")
        for case in self.cases(2):
            bound = self.bind(case, self.use(case, "rms_norm"))
            self._compute(bound, self.x(case, bound.query, 2, 3))

    @clause("KERN-203", "RMS norm: the reason names it", lacks="rms_norm", of=("answer",))
    def rms_norm_is_rejected(self) -> None:
        self._rejected("rms_norm")

    @clause(
        "KERN-107",
        "layer input: as near to the truth as it says",
        needs="layer_input",
        of=("prepare",),
    )
    def layer_input_is_right(self) -> None:
        self._right("layer_input")

    @clause("KERN-207", "layer input: the reason names it", lacks="layer_input", of=("answer",))
    def layer_input_is_rejected(self) -> None:
        self._rejected("layer_input")

    @clause(
        "KERN-108",
        "layer output: as near to the truth as it says",
        needs="layer_output",
        of=("prepare",),
    )
    def layer_output_is_right(self) -> None:
        self._right("layer_output")

    @clause("KERN-208", "layer output: the reason names it", lacks="layer_output", of=("answer",))
    def layer_output_is_rejected(self) -> None:
        self._rejected("layer_output")

    def _compute(self, bound: Bound, x: Any) -> None:
        self.check(bound, x, self.call(bound, x))

    def _right(self, op: str) -> None:
        for case in self.cases(8):
            bound = self.bind(case, self.use(case, op))
            for rows in ROWS:
                self._compute(bound, self.x(case, bound.query, rows))

    def _rejected(self, op: str) -> None:
        for query in self.all_queries():
            if query.op == op:
                check_rejected(self.new(), query, "op")
