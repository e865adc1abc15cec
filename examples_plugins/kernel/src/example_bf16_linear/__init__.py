"""A kernel: linear layers whose weights are kept in bfloat16, half as large.

The product is computed in float32, so that only the rounding of the weights shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from framework.contracts.base import Answer, Rejected, Rejection
from framework.contracts.kernel import Kernel, KernelQuery, KernelSupported, Prepared

if TYPE_CHECKING:
    import torch

SERVED: dict[str, tuple[object, ...]] = {
    "op": ("linear", "logits"),
    "tensor_api": ("torch",),
    "dtype": ("float32",),
    "weight_dtype": ("float32",),
    "quantization": (None,),
    "keep_once": (False,),
    "row_independent": (False,),
    "graph_mode": ("none",),
}
BFLOAT16, FLOAT32 = 2.0**-8, 2.0**-24  # largest error of rounding, relative
SMALLEST = 2.0**-126


def _rejection(query: KernelQuery, field: str, needed: object) -> Rejection:
    return Rejection(
        code=field,
        field=field,
        found=getattr(query, field),
        needed=needed,
        remedy="choose another kernel",
    )


class Bf16Linear(Kernel):
    """x times weight transposed, plus bias, with the weight rounded to bfloat16."""

    def answer(self, query: KernelQuery) -> Answer:
        reasons = [
            _rejection(query, field, " or ".join(map(str, values)))
            for field, values in SERVED.items()
            if getattr(query, field) not in values
        ]
        if not query.traits <= {"bias"}:
            reasons.append(_rejection(query, "traits", "bias at most"))
        if reasons:
            return Rejected(tuple(reasons))
        error = BFLOAT16 + (query.sizes["in_features"] + 2) * FLOAT32
        return KernelSupported(error=error, smallest=SMALLEST, packs=True)

    def prepare(
        self,
        query: KernelQuery,
        weights: Mapping[str, torch.Tensor],
        constants: Mapping[str, float],
    ) -> Prepared | Rejected:
        import torch
        from torch.nn.functional import linear

        packed = weights["weight"].to(torch.bfloat16)
        if not packed.isfinite().all():
            return Rejected((_rejection(query, "op", "weights that are finite in bfloat16"),))
        bias = weights["bias"].clone() if "bias" in weights else None

        def call(x: torch.Tensor) -> torch.Tensor:
            return linear(x, packed.float(), bias)

        return Prepared(call=call, keeps_weights=False, num_bytes=packed.nbytes)
