"""A and B of adapters as calls of kernels, like the other linear maps of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch

from framework.contracts.base import Rejected, Supported
from framework.contracts.kernel import Kernel, KernelQuery, Prepared
from framework.plugins.blame import blaming, expect
from framework.plugins.selection import ask_all, select
from framework_torch.adapters.fitting import Call

if TYPE_CHECKING:
    from framework.contracts.platform import DeviceFacts
    from framework.plugins.registry import PluginRegistry


class AdapterLinears:
    """Kernels of the operator "linear", in the order in which they are asked: those that the
    platform prefers and that compute each row on its own, then whatever selection finds.

    They keep the weights of adapters exactly.  Asked in any thread; chosen when this is made.
    """

    def __init__(
        self,
        registry: PluginRegistry,
        facts: DeviceFacts,
        dtype: str,
        ranking: Sequence[str],
    ) -> None:
        self._facts, self._dtype = facts, dtype
        alone = self._query(32, 32, row_independent=True)
        asked = ask_all(registry, "kernel", alone, ranking=ranking)
        preferred = [
            row for row in asked if row.record.name in ranking and isinstance(row.answer, Supported)
        ]
        for row in preferred[:1]:
            registry.find("kernel", row.record.name)  # raises for a second claim to the name
        usual = select(registry, "kernel", self._query(32, 32), ranking=ranking)
        self._kernels = [
            *((cast(Kernel, row.instance), row.record.name, True) for row in preferred),
            (cast(Kernel, usual.instance), usual.record.name, False),
        ]

    @property
    def note(self) -> str:
        """What the start-up lines tell."""
        _, name, alone = self._kernels[0]
        return f"by {name}" + ("" if alone else ", the bits of a row depend on its company")

    def make(self, weight: torch.Tensor) -> tuple[Call, int]:
        """weight [out, in], of the model's type, on the host."""
        for kernel, _, alone in self._kernels:
            query = self._query(weight.shape[1], weight.shape[0], row_independent=alone)
            if isinstance(kernel.answer(query), Rejected):
                continue
            held = weight.to(self._facts.device)
            with blaming(kernel, "preparing an adapter"):
                prepared = kernel.prepare(query, {"weight": held}, {})
            if not isinstance(prepared, Rejected):
                expect(kernel, "prepare", prepared, Prepared)
                own = held.nbytes if prepared.keeps_weights else 0
                return prepared.call, own + prepared.num_bytes
        held = weight.to(self._facts.device)
        return lambda x: torch.nn.functional.linear(x, held), held.nbytes

    def _query(self, inputs: int, outputs: int, *, row_independent: bool = False) -> KernelQuery:
        return KernelQuery(
            op="linear",
            platform=self._facts.name,
            device=self._facts.device,
            capability=self._facts.capability,
            features=self._facts.features,
            dtype=self._dtype,
            weight_dtype=self._dtype,
            sizes={"in_features": inputs, "out_features": outputs},
            row_independent=row_independent,
            lossless=True,
        )
