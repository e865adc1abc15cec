"""What the answers of several kernels have in common."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from framework.contracts.base import Rejection
from framework.contracts.kernel import OPERATORS, KernelQuery

# Largest relative error of rounding to nearest.
UNIT_ROUNDOFF: Mapping[str, float] = {
    "float32": 2.0**-24,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
}
ANOTHER = "let another kernel serve it"


def only(query: KernelQuery, field: str, allowed: Collection[object]) -> list[Rejection]:
    """A reason against a value that is not among `allowed`."""
    found = getattr(query, field)
    if found in allowed:
        return []
    needed = " or ".join(map(str, allowed))
    return [Rejection(code=field, field=field, found=found, needed=needed, remedy=ANOTHER)]


def only_known_traits(query: KernelQuery) -> list[Rejection]:
    """A reason against traits that came after this kernel."""
    operator = OPERATORS.get(query.op)
    known = frozenset(operator.traits if operator is not None else ())
    if query.traits <= known:
        return []
    found, needed = sorted(query.traits - known), f"some of {sorted(known)}"
    return [Rejection(code="traits", field="traits", found=found, needed=needed, remedy=ANOTHER)]


def only_plain_weights(query: KernelQuery) -> list[Rejection]:
    """A reason against weights that are no plain numbers of the type of the activations."""
    return [
        *only(query, "quantization", (None,)),
        *only(query, "weight_dtype", (query.dtype,)),
    ]
