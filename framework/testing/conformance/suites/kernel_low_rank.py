"""Clauses for the operator that computes an adapter's update as a whole, see docs/adapters.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from framework.contracts.kernel import KernelQuery, KernelSupported, Prepared
from framework.testing.conformance.cases import Case, expect
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.suites.attention_parts import packed
from framework.testing.conformance.suites.kernel_base import SIZES, STEP, KernelBase, low_rank
from framework.testing.conformance.suites.kernel_reference import F64
from framework.testing.conformance.suites.place import bridge_to
from framework.testing.conformance.suites.queries import check_rejected

RANKS = (1, 2, 8, 16, 33, 64)
ROWS = (1, 0, 2, 5, 40, 300)
I64 = npt.NDArray[np.int64]


class KernelLowRank(KernelBase):
    """y += x times down and up, both transposed, in place."""

    def low_rank(self, inputs: int = 32, rank: int = 16, outputs: int = 32) -> KernelQuery:
        """One of these sizes."""
        return low_rank(self.one(), inputs, rank, outputs)

    def computes_updates(self) -> bool:
        """Whether it serves the operator."""
        return isinstance(self.new().answer(self.low_rank()), KernelSupported)

    def update(self, case: Case, own: Any, inputs: int, outputs: int) -> Update:
        """A random one of these sizes.  Violation where they are not served."""
        rank = int(case.rng.choice(RANKS))
        query = self.low_rank(inputs, rank, outputs)
        case.note(dtype=query.dtype, sizes=dict(query.sizes))
        answer = own.answer(query)
        expect(isinstance(answer, KernelSupported), "other sizes are not served", found=answer)
        weights = {
            "down": self.tensor(query, case.rng.normal(size=(rank, inputs)), query.weight_dtype),
            "up": self.tensor(query, case.rng.normal(size=(outputs, rank)), query.weight_dtype),
        }
        down, up = (self.read(query, weights[name]) for name in ("down", "up"))
        prepared = own.prepare(query, weights, {})
        expect(isinstance(prepared, Prepared), "ordinary weights are rejected", found=prepared)
        return Update(query, answer, prepared.call, down, up)

    def _sizes(self, case: Case) -> tuple[int, int]:
        inputs, outputs = (int(size) for size in case.rng.choice(SIZES, 2))
        return inputs, outputs

    def _rows(self, case: Case, query: KernelQuery, rows: int) -> tuple[F64, F64]:
        """Of x, and of y before."""
        shapes = [(rows, query.sizes[name]) for name in ("in_features", "out_features")]
        x, y = (self.read(query, self.tensor(query, case.rng.normal(size=s))) for s in shapes)
        return x, y

    def _wide(self, query: KernelQuery, values: F64) -> tuple[Any, Any]:
        """(a tensor whose rows lie in wider ones, the buffer): maps are parts of fused ones."""
        bridge = bridge_to(self.target.registry, query.tensor_api)
        rows, width = values.shape
        whole = np.full((rows + 1, width + 5), np.nan)
        whole[:rows, 1 : width + 1] = values
        size = len(packed(np.zeros(1), query.dtype))
        buffer = bridge.tensor(packed(whole, query.dtype), "uint8", query.device)
        view = bridge.view(buffer, query.dtype, values.shape, size, whole.shape[1] * size)
        return view, buffer

    def places(self, case: Case, rows: int) -> Iterator[I64 | None]:
        """All, none, and some in any order."""
        yield None
        order = case.rng.permutation(rows).astype(np.int64)
        yield from (order, order[: rows // 2], order[:0])

    def ids(self, query: KernelQuery, at: I64 | None) -> Any:
        """Such rows as a call takes them."""
        return None if at is None else self.tensor(query, at, "int64")  # type: ignore[arg-type]

    @clause(
        "KERN-109",
        "low rank: to the rows that are named, or to all, the update is added in place",
        needs="low_rank",
        of=("prepare",),
    )
    def updates_are_right(self) -> None:
        for case in self.cases(6):
            update = self.update(case, self.new(), *self._sizes(case))
            for rows in ROWS:
                for at in self.places(case, rows):
                    self._check_update(case, update, rows, at)

    def _check_update(self, case: Case, update: Update, rows: int, at: I64 | None) -> None:
        query = update.query
        x, y = self._rows(case, query, rows)
        given = self.tensor(query, x)
        changed, _ = self._wide(query, y)
        result = update.call(given, changed, self.ids(query, at))
        what = f"y for {rows} rows, at {None if at is None else at[:6]}"
        expect(result is None, "the call gives something", expected="None: y is changed in place")
        expect(np.array_equal(self.read(query, given), x), "x was changed")
        found = self.read(query, changed)
        chosen = np.arange(rows) if at is None else at
        rest = np.setdiff1d(np.arange(rows), chosen)
        expect(np.array_equal(found[rest], y[rest]), f"{what}: other rows were changed")
        truth, terms = update.truth(x[chosen], y[chosen])
        off = np.abs(found[chosen] - truth)
        wrong = ~(off <= update.answer.error * terms + STEP.get(query.dtype, 0.0))
        expect(
            not wrong.any(),
            f"{what} is wrong in {int(wrong.sum())} of {wrong.size} elements",
            expected=truth[wrong][:3],
            found=found[chosen][wrong][:3],
        )
        if rows > 1 and len(chosen) and update.answer.row_independent:
            row = int(chosen[-1])
            alone, _ = self._wide(query, y[row : row + 1])
            update.call(self.tensor(query, x[row : row + 1]), alone, None)
            same = np.array_equal(self.read(query, alone)[0], found[row])
            expect(same, f"{what}: row {row} differs from what it is alone")

    @clause(
        "KERN-110",
        "low rank: updates that are added in one call are those that each gives alone",
        needs="low_rank",
        of=("prepare",),
    )
    def updates_together(self) -> None:
        """Of the attribute `together` of a call, where it has one."""
        for case in self.cases(4):
            own, sizes = self.new(), self._sizes(case)
            updates = [self.update(case, own, *sizes) for _ in range(3)]
            together = getattr(updates[0].call, "together", None)
            if together is None:
                return
            query = updates[0].query
            for rows in (1, 7, 60):
                x, y = self._rows(case, query, rows)
                owner = case.rng.integers(-1, len(updates), rows)  # -1: of none
                places = [np.flatnonzero(owner == index) for index in range(len(updates))]
                pairs = list(zip(updates, places, strict=True))
                wanted, _ = self._wide(query, y)
                for update, at in pairs:
                    update.call(self.tensor(query, x), wanted, self.ids(query, at))
                found, _ = self._wide(query, y)
                given = [(update.call, self.ids(query, at)) for update, at in pairs]
                together(self.tensor(query, x), found, given)
                same = np.array_equal(self.read(query, found), self.read(query, wanted))
                expect(same, f"{rows} rows of three adapters: other bits than one by one")

    @clause("KERN-209", "low rank: the reason names it", lacks="low_rank", of=("answer",))
    def low_rank_is_rejected(self) -> None:
        check_rejected(self.new(), self.low_rank(), "op")


class Update:
    """A prepared update and its weights in float64."""

    def __init__(
        self, query: KernelQuery, answer: KernelSupported, call: Any, down: F64, up: F64
    ) -> None:
        self.query, self.answer, self.call = query, answer, call
        self._down, self._up = down, up

    @property
    def product(self) -> F64:
        """The weights of one linear map that does the same."""
        return self._up @ self._down

    def truth(self, x: F64, y: F64) -> tuple[F64, F64]:
        """(y afterwards, the magnitudes of what it is the sum of)."""
        values = y + x @ self._down.T @ self._up.T
        terms = np.abs(y) + np.abs(x) @ np.abs(self._down).T @ np.abs(self._up).T
        return values, terms
