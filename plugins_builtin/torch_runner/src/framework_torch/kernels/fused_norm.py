"""RMS norm as one torch operator, which computes in fewer passes through Python and memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from framework.contracts.base import Answer, Rejected
from framework.contracts.kernel import Kernel, KernelQuery, KernelSupported, Prepared
from framework_torch.kernels.answers import (
    UNIT_ROUNDOFF,
    only,
    only_known_traits,
    only_plain_weights,
)

if TYPE_CHECKING:
    import torch


class FusedNormKernel(Kernel):
    """float32 only: in narrower types it rounds elsewhere than models were trained with."""

    def answer(self, query: KernelQuery) -> Answer:
        reasons = [
            *only(query, "op", ("rms_norm",)),
            *only(query, "tensor_api", ("torch",)),
            *only(query, "dtype", ("float32",)),
            *only_known_traits(query),
            *only_plain_weights(query),
        ]
        if "offset" in query.traits:  # the sum is kept beside what others read
            reasons += only(query, "keep_once", (False,))
        if reasons:
            return Rejected(tuple(reasons))
        return KernelSupported(
            note="torch.rms_norm",
            error=(query.sizes["features"] + 8) * UNIT_ROUNDOFF["float32"],
            packs="offset" in query.traits,
            row_independent=True,
        )

    def prepare(
        self,
        query: KernelQuery,
        weights: Mapping[str, torch.Tensor],
        constants: Mapping[str, float],
    ) -> Prepared | Rejected:
        import torch

        eps, shape = constants["eps"], (query.sizes["features"],)
        if "offset" in query.traits:
            weight = 1.0 + weights["weight"]
            return Prepared(
                call=lambda x: torch.rms_norm(x, shape, weight, eps),
                keeps_weights=False,
                num_bytes=weight.nbytes,
            )
        own = weights["weight"]
        return Prepared(call=lambda x: torch.rms_norm(x, shape, own, eps))
