"""Linear with weights packed to fp16, on FBGEMM: float32 in and out, sums in float32.

A step of few rows is bound by reading the weights; these have half the bytes.  Weights of a
bfloat16 or fp16 checkpoint survive exactly, but for bfloat16 numbers below fp16's normal range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from framework.contracts.base import Answer, Rejected, Rejection
from framework.contracts.kernel import Kernel, KernelQuery, KernelSupported, Prepared
from framework_torch.kernels.answers import (
    ANOTHER,
    UNIT_ROUNDOFF,
    only,
    only_known_traits,
    only_plain_weights,
)

if TYPE_CHECKING:
    import torch

LARGEST = 65504.0
SMALLEST_NORMAL = 2.0**-14
# FBGEMM's engine goes by the second name where oneDNN shares the work.
ENGINES = ("fbgemm", "x86")
INSTRUCTIONS = frozenset(("avx2", "f16c", "fma"))
# Without AVX-512 rows are computed in blocks of six, and a last block of one or two by other code
# whose sums differ in the last bit.
BLOCK_ROWS = 6
FEWEST_ROWS = 3


class Fp16PackedKernel(Kernel):
    """Linear only."""

    def answer(self, query: KernelQuery) -> Answer:
        reasons = [
            *only(query, "op", ("linear", "logits")),
            *only(query, "tensor_api", ("torch",)),
            *only(query, "device", ("cpu",)),
            *only(query, "dtype", ("float32",)),
            *only(query, "graph_mode", ("none",)),
            *only(query, "lossless", (False,)),
            *only_known_traits(query),
            *only_plain_weights(query),
            *_instructions(query),
        ]
        if query.keep_once:
            reasons.append(
                Rejection(
                    code="keep_once",
                    field="keep_once",
                    found=True,
                    needed="a weight that nothing else reads",
                    remedy=f'name this kernel for "{query.op}", to have it packed beside the other',
                )
            )
        if reasons:
            return Rejected(tuple(reasons))
        terms = query.sizes["in_features"] + 1
        return KernelSupported(
            note="weights rounded to fp16 and packed by FBGEMM, float32 activations",
            error=UNIT_ROUNDOFF["float16"] + terms * UNIT_ROUNDOFF["float32"],
            smallest=SMALLEST_NORMAL,
            packs=True,
            row_independent=query.row_independent,
        )

    def prepare(
        self,
        query: KernelQuery,
        weights: Mapping[str, torch.Tensor],
        constants: Mapping[str, float],
    ) -> Prepared | Rejected:
        import torch

        weight, bias = weights["weight"], weights.get("bias")
        unfit = _engine(torch.backends.quantized) or _range(weight)
        if unfit is not None:
            return Rejected((unfit,))
        ops = torch.ops.quantized
        # The bias is copied: the packed object outlives the model's own.
        packed = ops.linear_prepack_fp16(
            weight.contiguous(), None if bias is None else bias.clone()
        )
        call = _bound(ops.linear_dynamic_fp16.default, packed)
        if query.row_independent:
            call = _padded(call)
        return Prepared(call=call, keeps_weights=False, num_bytes=2 * weight.numel())


def _bound(op: Callable[..., Any], packed: object) -> Callable[[Any], Any]:
    return lambda x: op(x, packed)


def _padded(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Never one or two rows in the last block."""
    from torch.nn.functional import pad

    def padded(x: torch.Tensor) -> torch.Tensor:
        rows = x.shape[0]
        if 0 < rows % BLOCK_ROWS < FEWEST_ROWS:
            result: torch.Tensor = call(pad(x, (0, 0, 0, FEWEST_ROWS - rows % BLOCK_ROWS)))
            return result[:rows]
        whole: torch.Tensor = call(x)
        return whole

    return padded


def _instructions(query: KernelQuery) -> list[Rejection]:
    missing = INSTRUCTIONS - query.features
    if not missing:
        return []
    return [
        Rejection(
            code="features",
            field="features",
            found=f"no {', '.join(sorted(missing))}",
            needed=f"a processor with {', '.join(sorted(INSTRUCTIONS))}",
            remedy=ANOTHER,
        )
    ]


def _engine(quantized: Any) -> Rejection | None:
    """FBGEMM must be built in, and must be the engine that torch's operators call."""
    if quantized.engine in ENGINES:
        return None
    return Rejection(
        code="engine",
        field="torch.backends.quantized.engine",
        found=quantized.engine,
        needed=" or ".join(ENGINES),
        remedy="set the engine, or install a build of torch with FBGEMM",
    )


def _range(weight: torch.Tensor) -> Rejection | None:
    """FBGEMM would clip what fp16 cannot hold."""
    low, high = (float(end) for end in weight.aminmax()) if weight.numel() else (0.0, 0.0)
    largest = max(-low, high)
    if largest <= LARGEST:  # False for NaN, too
        return None
    return Rejection(
        code="weight_range",
        field="weight",
        found=largest,
        needed=f"magnitudes of at most {LARGEST:g}, the largest number of fp16",
        remedy=ANOTHER,
    )
