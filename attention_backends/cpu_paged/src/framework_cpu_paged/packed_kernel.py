"""The kernel; torch and the part in C are imported on first use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from framework.contracts.base import Answer, Rejected
from framework.contracts.kernel import Kernel, KernelQuery, Prepared
from framework_cpu_paged.packed_answer import answer

if TYPE_CHECKING:
    import torch

    from framework.contracts.weight_rows import WeightRows


class CpuPackedKernel(Kernel):
    """Linear maps with packed weights, and the whole of a decoder layer around its attention.

    Nothing that is computed for a row depends on the rows that come with it.
    """

    def answer(self, query: KernelQuery) -> Answer:
        return answer(query)

    def prepare(
        self,
        query: KernelQuery,
        weights: Mapping[str, torch.Tensor],
        constants: Mapping[str, float],
    ) -> Prepared | Rejected:
        return self.prepare_rows(query, weights, constants)

    def prepare_rows(
        self,
        query: KernelQuery,
        weights: Mapping[str, torch.Tensor | WeightRows],
        constants: Mapping[str, float],
    ) -> Prepared | Rejected:
        from framework_cpu_paged.packed_calls import prepare

        return prepare(query, weights, constants)
