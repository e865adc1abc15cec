"""Clauses for weights that a kernel may read some rows at a time."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from framework.contracts.base import Rejected
from framework.contracts.kernel import KernelQuery, KernelSupported, Prepared
from framework.testing.conformance import garbage
from framework.testing.conformance.cases import Case, expect
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.suites.kernel_base import KernelBase
from framework.testing.conformance.suites.kernel_reference import F64
from framework.testing.conformance.suites.queries import but

MANY = {"in_features": 96, "out_features": 6007}
"""More than a kernel may want to read at a time."""


class ByRows:
    """A `framework.contracts.weight_rows.WeightRows` that notes what was asked of it.

    given: parts.  asked: how often for the whole.
    """

    def __init__(self, values: F64, tensor: Any, make: Callable[[F64], Any]) -> None:
        self._values, self._tensor, self._make = values, tensor, make
        self.shape: tuple[int, ...] = values.shape
        self.dtype = tensor.dtype
        self.given: list[weakref.ref[Any]] = []
        self.asked = 0

    def rows(self, start: int, stop: int) -> Any:
        good = 0 <= start < stop <= self.shape[0]
        expect(good, "rows that are none", expected=f"of {self.shape[0]}", found=(start, stop))
        part = self._make(self._values[start:stop])
        self.given.append(weakref.ref(part))
        return part

    def whole(self) -> Any:
        self.asked += 1
        return self._tensor


class KernelRows(KernelBase):
    """Each use is bound to the same weights twice: as a whole, and by rows."""

    @clause(
        "KERN-031",
        "weights that are read by rows count as if they had come as a whole",
        of=("prepare_rows",),
    )
    def rows_count_as_the_whole(self) -> None:
        for case in self.cases(5):
            drawn = self.use(case)
            query = self._large() if case.index == 0 else drawn
            weights, constants = self.draw(case, query)
            own = self.new()
            whole = own.prepare(query, weights, constants)
            parted = own.prepare_rows(query, self.by_rows(query, weights), constants)
            expect(isinstance(whole, Prepared), "ordinary weights are rejected", found=whole)
            expect(isinstance(parted, Prepared), "they are rejected by rows", found=parted)
            self._same(case, query, whole, parted)

    @clause(
        "KERN-032",
        "weights out of the ordinary that are read by rows are rejected or computed as whole ones",
        of=("prepare_rows",),
    )
    def odd_rows_are_found(self) -> None:
        """It may be the last number."""
        served = self.served()[:9]
        for case in self.cases(len(served)):
            query = served[case.index]
            case.note(op=query.op, dtype=query.dtype)
            weights, constants = self.draw(case, query)
            for name, tensor in weights.items():
                values = self.read(query, tensor)
                values.flat[-1] = 20000.0 if query.dtype == "float16" else 1e9
                weights[name] = self.tensor(query, values, query.weight_dtype)
            own = self.new()
            whole = own.prepare(query, weights, constants)
            parted = own.prepare_rows(query, self.by_rows(query, weights), constants)
            rejected = isinstance(whole, Rejected)
            expect(
                isinstance(parted, Rejected) == rejected, "by rows it is otherwise", found=parted
            )
            if not rejected:
                self._same(case, query, whole, parted)

    @clause(
        "KERN-033",
        "of weights that are read by rows it keeps nothing, or what it was given as a whole",
        of=("prepare_rows",),
    )
    def parts_are_let_go(self) -> None:
        for case in self.cases(4):
            query = self.use(case)
            with garbage.of_its_own():
                weights, constants = self.draw(case, query)
                sources = self.by_rows(query, weights)
                prepared = self.new().prepare_rows(query, sources, constants)
                expect(isinstance(prepared, Prepared), "they are rejected", found=prepared)
                parted = [each for each in sources.values() if isinstance(each, ByRows)]
                gc.collect()
                kept = [ref for each in parted for ref in each.given if ref() is not None]
                expect(not kept, "it holds rows that it was given to read")
            unasked = [each for each in parted if not each.asked]
            kept_none = not prepared.keeps_weights or not unasked
            expect(kept_none, "it says that it keeps weights which it never asked for as a whole")

    def by_rows(self, query: KernelQuery, weights: Mapping[str, Any]) -> dict[str, Any]:
        """The same weights; those with rows come so."""
        found = dict(weights)
        for name, tensor in weights.items():
            values = self.read(query, tensor)
            if values.ndim == 2:
                found[name] = ByRows(
                    values, tensor, lambda part: self.tensor(query, part, query.weight_dtype)
                )
        return found

    def _large(self) -> KernelQuery:
        """A linear map of many rows, or whatever is served."""
        plain = self.served()
        own = self.new()
        large = [but(query, sizes=MANY) for query in plain if query.op in ("linear", "logits")]
        able = [query for query in large if isinstance(own.answer(query), KernelSupported)]
        return (able or plain)[0]

    def _same(self, case: Case, query: KernelQuery, whole: Prepared, parted: Prepared) -> None:
        x = self.x(case, query, 5)
        one, other = (
            self.read(query, each.call(*self.arguments(query, x))) for each in (whole, parted)
        )
        same = np.array_equal(one, other, equal_nan=True)
        expect(same, "the result is another", expected=one[0, :4], found=other[0, :4])
