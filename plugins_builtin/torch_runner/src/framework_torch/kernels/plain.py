"""The plain kernel: torch's own operators, on the weights as they are.

Uses that stand for others have none: their parts are computed on their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from framework.contracts.base import Answer, Rejected
from framework.contracts.kernel import OPERATORS, Kernel, KernelQuery, KernelSupported, Prepared
from framework_torch.kernels.answers import (
    UNIT_ROUNDOFF,
    only,
    only_known_traits,
    only_plain_weights,
)

if TYPE_CHECKING:
    import torch

Call = Callable[["torch.Tensor"], "torch.Tensor"]
Weights = Mapping[str, "torch.Tensor"]
FLOAT32 = UNIT_ROUNDOFF["float32"]


class PlainKernel(Kernel):
    """Keeps the weights, and is the measure of all others."""

    def answer(self, query: KernelQuery) -> Answer:
        reasons = [
            *only(query, "op", _CALLS),
            *only(query, "tensor_api", ("torch",)),
            *only(query, "dtype", UNIT_ROUNDOFF),
            *only_known_traits(query),
            *only_plain_weights(query),
        ]
        if query.op in ("linear", "logits"):
            # The library chooses another order of summation by the number of rows.
            reasons += only(query, "row_independent", (False,))
        if reasons:
            return Rejected(tuple(reasons))
        # Sums are taken in float32, and the result is rounded once.
        terms = max(query.sizes.get("in_features", 0), query.sizes.get("features", 0)) + 8
        narrow = UNIT_ROUNDOFF[query.dtype] if query.dtype != "float32" else 0.0
        return KernelSupported(
            note="torch's own operators, weights as they are",
            error=terms * FLOAT32 + 3 * narrow,
            row_independent=query.op == "rms_norm",
        )

    def prepare(
        self, query: KernelQuery, weights: Weights, constants: Mapping[str, float]
    ) -> Prepared | Rejected:
        return Prepared(call=_CALLS[query.op](weights, constants, query.traits))


def _linear(weights: Weights, constants: Mapping[str, float], traits: frozenset[str]) -> Call:
    from torch.nn.functional import linear

    weight, bias = weights["weight"], weights.get("bias")
    return lambda x: linear(x, weight, bias)


def _rms_norm(weights: Weights, constants: Mapping[str, float], traits: frozenset[str]) -> Call:
    from framework_torch.models.layers import offset_rms_norm, rms_norm

    weight, eps = weights["weight"], constants["eps"]
    compute = offset_rms_norm if "offset" in traits else rms_norm
    return lambda x: compute(x, weight, eps)


_CALLS: Mapping[str, Callable[[Weights, Mapping[str, float], frozenset[str]], Call]] = {
    "linear": _linear,
    "logits": _linear,
    "rms_norm": _rms_norm,
}
assert _CALLS.keys() <= OPERATORS.keys()
