"""What the clauses for kernels share: queries, weights, bound kernels beside the reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from framework.contracts.base import Rejected
from framework.contracts.kernel import (
    OPERATORS,
    KernelQuery,
    KernelSupported,
    Prepared,
    usual_queries,
)
from framework.contracts.platform import DeviceFacts
from framework.plugins.manifests import Facts
from framework.testing.conformance.cases import Case, expect
from framework.testing.conformance.outcomes import NoDevice, Unanswered, Violation
from framework.testing.conformance.suite import Suite
from framework.testing.conformance.suites.attention_parts import packed
from framework.testing.conformance.suites.kernel_layers import LAYER_SIZES, LAYERS
from framework.testing.conformance.suites.kernel_reference import (
    F64,
    REFERENCES,
    Reference,
    floor_of,
)
from framework.testing.conformance.suites.place import bridge_to, ready_platforms
from framework.testing.conformance.suites.queries import but

SIZES = (1, 2, 3, 7, 8, 16, 24, 33, 64, 65, 100, 128)
LOW_RANK = "framework.low_rank"
STEP = {"float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}
"""Between numbers near zero."""
ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "layer_input": ("features", "half_head", "half_head"),
    "layer_output": ("in_features", "features"),
}
"""Sizes of the arguments of a call, where it is not one of the first size."""
_ABOUT_THE_PLACE = {"platform", "device", "capability", "features", "tensor_api"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A prepared kernel.  weights, constants: what it is bound to, in float64."""

    query: KernelQuery
    answer: KernelSupported
    prepared: Prepared
    weights: Mapping[str, F64]
    constants: Mapping[str, float]


class KernelBase(Suite):
    """Class attributes, beside those of `Suite`:
    references: by operator; a subclass may have those of further ones, with `queries`.
    tensor_api: whose tensors to use.  platform: name of the platform to use.
    """

    kind = "kernel"
    references: ClassVar[Mapping[str, Reference]] = {**REFERENCES, **LAYERS}
    tensor_api: ClassVar[str] = "torch"
    platform: ClassVar[str | None] = None

    def queries(self, facts: DeviceFacts) -> list[KernelQuery]:
        """Plain uses, in small sizes and in each type that the platform computes in."""
        plain = (q for q in usual_queries(facts) if q.op in self.references)
        small = [but(q, sizes=_sizes(q, lambda: 16)) for q in plain]
        return [but(q, dtype=name, weight_dtype=name) for q in small for name in facts.dtypes]

    def served(self) -> list[KernelQuery]:
        """Those of `queries` that are supported, on the first platform where some are.

        Raises NoDevice if the kernel is for another platform, Violation if it serves nothing.
        """
        if "kernel" not in self.target.memo:
            self.target.memo["kernel"] = self._look()
        found: list[KernelQuery] = self.target.memo["kernel"]
        return found

    def one(self) -> KernelQuery:
        """A query that is supported: the first of `served`, or an update of an adapter where it
        serves nothing else."""
        served = self.served()
        found: list[KernelQuery] = served or self.target.memo["updates"]
        return found[0]

    def _updates(self, own: Any, facts: DeviceFacts) -> list[KernelQuery]:
        """Updates of adapters that are supported, in each type."""
        plain = usual_queries(facts)[0]
        asked = [low_rank(but(plain, dtype=name, weight_dtype=name)) for name in facts.dtypes]
        return [query for query in asked if isinstance(own.answer(query), KernelSupported)]

    def _look(self) -> list[KernelQuery]:
        own, refused = self.new(), list[Rejected]()
        for facts in ready_platforms(self.target.registry, self.platform):
            self.target.memo["updates"] = updates = self._updates(own, facts)
            found = []
            for query in self.queries(facts):
                answer = own.answer(query)
                if isinstance(answer, KernelSupported):
                    found.append(query)
                else:
                    refused.append(answer)
            if found or updates:
                return found
        # Of each operator it rejects all; it may serve one of them elsewhere.
        of_ops = [{reason.field for reason in answer.reasons} for answer in refused]
        elsewhere = [fields for fields in of_ops if "op" not in fields]
        if not refused or (elsewhere and all(f & _ABOUT_THE_PLACE for f in elsewhere)):
            raise NoDevice("no platform that it serves is ready")
        raise Violation(
            "it rejects every plain use of every operator\n"
            f"  expected: one of {', '.join(self.references)}\n"
            f"  found:    {'; '.join(str(reason) for reason in refused[0].reasons)}"
        )

    def knows(self, major: int, minor: int) -> bool:
        """Whether it is asked queries with fields of this version of the contract."""
        record = self.target.record
        facts = record.facts or Facts(kind=record.kind, name=record.name)
        return facts.knows_until(self.target.registry.kind(record.kind)) >= (major, minor)

    def all_queries(self) -> list[KernelQuery]:
        """All of `queries` on the platform where some are served."""
        name = self.one().platform
        (facts,) = ready_platforms(self.target.registry, name)
        return self.queries(facts)

    def use(self, case: Case, op: str | None = None) -> KernelQuery:
        """A random use that is supported, of one operator or of any.  Unanswered where there is
        none, as of a kernel for the updates of adapters alone."""
        if not self.served():
            raise Unanswered("it serves no operator but framework.low_rank, see KERN-109")
        plain = [query for query in self.served() if op in (None, query.op)]
        query = plain[int(case.rng.integers(len(plain)))]
        operator = OPERATORS.get(query.op)
        traits = operator.traits if operator is not None else ()
        for _ in range(20):
            drawn = but(
                query,
                sizes=_sizes(query, lambda: int(case.rng.choice(SIZES))),
                traits=frozenset(name for name in traits if case.rng.random() < 0.5),
                row_independent=bool(case.rng.random() < 0.3),
            )
            if isinstance(self.new().answer(drawn), KernelSupported):
                query = drawn
                break
        case.note(
            op=query.op, dtype=query.dtype, sizes=dict(query.sizes), traits=sorted(query.traits)
        )
        return query

    def tensor(self, query: KernelQuery, values: F64, dtype: str | None = None) -> Any:
        """On the device of the query, in its type."""
        bridge = bridge_to(self.target.registry, query.tensor_api)
        return bridge.tensor(values, dtype or query.dtype, query.device)

    def read(self, query: KernelQuery, tensor: Any) -> F64:
        """The values of a tensor."""
        return bridge_to(self.target.registry, query.tensor_api).array(tensor).astype(float)

    def draw(self, case: Case, query: KernelQuery) -> tuple[dict[str, Any], dict[str, float]]:
        """Random weights as tensors, over many orders of magnitude, and constants."""
        operator = OPERATORS[query.op]
        made = {}
        for name, shape in operator.weights.items():
            if name.startswith("[") and name.strip("[]") not in query.traits:
                continue
            sizes = [query.sizes[size] for size in shape.strip("[]").split(", ")]
            values = case.rng.normal(size=sizes) * np.exp(case.rng.uniform(-6, 2, size=sizes))
            made[name.strip("[]")] = self.tensor(query, values, query.weight_dtype)
        constants = {name: float(10.0 ** -case.rng.integers(1, 7)) for name in operator.constants}
        return made, constants

    def bind(self, case: Case, query: KernelQuery, own: Any = None, weights: Any = None) -> Bound:
        """Prepare for random weights.  Violation if they are rejected: they are ordinary."""
        own = own or self.new()
        answer = own.answer(query)
        expect(isinstance(answer, KernelSupported), "it is supported, and then not", found=answer)
        drawn, constants = self.draw(case, query)
        given = weights or drawn
        values = {name: self.read(query, tensor) for name, tensor in given.items()}
        prepared = own.prepare(query, given, constants)
        expect(isinstance(prepared, Prepared), "ordinary weights are rejected", found=prepared)
        return Bound(
            query=query, answer=answer, prepared=prepared, weights=values, constants=constants
        )

    def x(self, case: Case, query: KernelQuery, *rows: int) -> F64:
        """Random activations [*rows, features], as exact as their type holds them; of an operator
        with several arguments side by side."""
        width = sum(_widths(query))
        scale = 10.0 ** case.rng.integers(-3, 3)
        return self.read(query, self.tensor(query, case.rng.normal(size=(*rows, width)) * scale))

    def arguments(self, query: KernelQuery, x: F64) -> list[Any]:
        """Activations as the operator takes them."""
        parts = np.split(x, np.cumsum(_widths(query))[:-1], axis=-1)
        return [self.tensor(query, part) for part in parts]

    def apart(self, query: KernelQuery, x: F64) -> list[Any]:
        """The same, with rows that lie in wider ones: between them is NaN."""
        bridge, size = bridge_to(self.target.registry, query.tensor_api), _size(query)
        made = []
        for part in np.split(x, np.cumsum(_widths(query))[:-1], axis=-1):
            rows, width = part.shape
            wide = np.full((rows + 1, 2 * width + 3), np.nan)
            wide[:rows, 1 : width + 1] = part
            whole = bridge.tensor(packed(wide, query.dtype), "uint8", query.device)
            stride = wide.shape[1] * size
            made.append(bridge.view(whole, query.dtype, part.shape, size, stride))
        return made

    def call(self, bound: Bound, x: F64) -> Any:
        """What the kernel makes of activations."""
        return bound.prepared.call(*self.arguments(bound.query, x))

    def check(self, bound: Bound, x: F64, result: Any, what: str = "the result") -> None:
        """Violation unless a result is as near to the truth as the answer promises."""
        query, found = bound.query, self.read(bound.query, result)
        truth = self.references[query.op](
            x,
            bound.weights,
            {**bound.constants, **query.sizes},
            query.traits,
            floor_of(bound.answer),
        )
        expect(
            found.shape == truth.values.shape,
            f"{what} has the wrong shape",
            expected=truth.values.shape,
            found=found.shape,
        )
        off = np.abs(found - truth.values)
        largest = max((float(np.abs(w).max(initial=0)) for w in bound.weights.values()), default=0)
        floor = STEP.get(query.dtype, 0.0) * (1 + largest)
        wrong = ~(off <= bound.answer.error * truth.terms + floor)
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise Violation(
                f"{what} is wrong in {int(wrong.sum())} of {wrong.size} elements\n"
                f"  expected: {truth.values[at]:.8g} at {at}, within "
                f"{bound.answer.error * truth.terms[at]:.2g} (error {bound.answer.error:.2g})\n"
                f"  found:    {found[at]:.8g}"
            )


def low_rank(
    query: KernelQuery, inputs: int = 32, rank: int = 16, outputs: int = 32
) -> KernelQuery:
    """An update of an adapter where a query is asked, as a runner asks: it is rounded nowhere, and
    depends on no other request."""
    return but(
        query,
        op=LOW_RANK,
        sizes={"in_features": inputs, "rank": rank, "out_features": outputs},
        traits=frozenset(),
        row_independent=True,
        lossless=True,
    )


def _sizes(query: KernelQuery, draw: Callable[[], int]) -> dict[str, int]:
    """Sizes for an operator, which fit together where they must."""
    fitting = LAYER_SIZES.get(query.op)
    return {name: draw() for name in query.sizes} if fitting is None else fitting(draw)


def _size(query: KernelQuery) -> int:
    """Bytes of an element of the activations."""
    return len(packed(np.zeros(1), query.dtype))


def _widths(query: KernelQuery) -> list[int]:
    """Of the arguments of a call."""
    names = ARGUMENTS.get(query.op, (next(iter(query.sizes)),))
    return [query.sizes[name] for name in names]
