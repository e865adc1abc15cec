"""Uses of packed kernels that tests ask for."""

from __future__ import annotations

import torch

from framework.contracts.kernel import KernelQuery
from framework_cpu_paged.packed_kernel import CpuPackedKernel


def query(outputs: int, inputs: int, **changes) -> KernelQuery:
    given = {
        "op": "linear",
        "platform": "cpu",
        "device": "cpu",
        "dtype": "float32",
        "weight_dtype": "float32",
        "sizes": {"in_features": inputs, "out_features": outputs},
    }
    return KernelQuery(**{**given, **changes})


def prepared(weight: torch.Tensor, **changes):
    return CpuPackedKernel().prepare(query(*weight.shape, **changes), {"weight": weight}, {})
