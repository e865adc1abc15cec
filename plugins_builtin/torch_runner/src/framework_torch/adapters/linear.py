"""A and B of adapters as calls of kernels, like the linear maps of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import torch

from framework.contracts.base import Rejected, Supported
from framework.contracts.kernel import Kernel, KernelQuery, Prepared
from framework.errors import UnsupportedError
from framework.plugins.blame import blaming, expect
from framework.plugins.selection import ask_all, select
from framework_torch.adapters.fitting import Update

if TYPE_CHECKING:
    from framework.contracts.platform import DeviceFacts
    from framework.plugins.registry import PluginRegistry

LOW_RANK = "framework.low_rank"
"""The operator of a whole update; see docs/adapters.md."""
_SIZES: Mapping[str, Sequence[str]] = {
    LOW_RANK: ("in_features", "rank", "out_features"),
    "linear": ("in_features", "out_features"),
}
_USUAL: Mapping[str, Sequence[int]] = {LOW_RANK: (32, 16, 32), "linear": (32, 32)}


class AdapterLinears:
    """Kernels that compute adapters, in the order in which they are asked: for an update as a whole
    the operator's choice, or those that the platform prefers; for its two linear maps those that
    the platform prefers and that compute each row on its own, then whatever selection finds.

    They keep the weights of adapters exactly.  Asked in any thread; chosen when this is made.
    Raises SelectionError for a choice that cannot serve.
    """

    def __init__(
        self,
        registry: PluginRegistry,
        facts: DeviceFacts,
        dtype: str,
        ranking: Sequence[str],
        named: str | None = None,
    ) -> None:
        """named: the kernel that the operator wants for updates as a whole."""
        self._registry, self._ranking = registry, ranking
        self._facts, self._dtype, self._bound = facts, dtype, False
        self._whole = self._named(named) if named else self._preferred(LOW_RANK)
        usual = select(
            registry, "kernel", self._query("linear", *_USUAL["linear"]), ranking=ranking
        )
        self._kernels = [
            *((kernel, name, True) for kernel, name in self._preferred("linear")),
            (cast(Kernel, usual.instance), usual.record.name, False),
        ]

    def suits(self, kernel: str) -> bool:
        """Whether a kernel that computes several linear maps and more in one call may be one that
        adds updates by itself."""
        return bool(self._whole) and self._whole[0][1] == kernel

    def join(self, prepared: Prepared) -> bool:
        """Whether such a call adds updates by itself; all are of that kernel from then on."""
        found = hasattr(prepared.call, "updated")
        self._bound |= found
        return found

    @property
    def within(self) -> bool:
        """Whether there are such kernels in the model."""
        return self._bound

    @property
    def note(self) -> str:
        """What the start-up lines tell."""
        if self._whole:
            return f"by {self._whole[0][1]}"
        _, name, alone = self._kernels[0]
        return f"by {name}" + ("" if alone else ", the bits of a row depend on its company")

    def make(self, down: torch.Tensor, up: torch.Tensor) -> tuple[Update, int]:
        """An update and the bytes that it takes.  down [rank, in], up [out, rank], of the model's
        type, on the host.  Raises UnsupportedError where no kernel takes them."""
        inputs, rank, outputs = down.shape[1], down.shape[0], up.shape[0]
        query = self._query(LOW_RANK, inputs, rank, outputs, row_independent=True)
        for kernel, name in self._whole[:1] if self._bound else self._whole:
            made = self._prepared(kernel, query, {"down": down, "up": up})
            if not isinstance(made, Rejected):
                return made
            if self._bound:
                raise UnsupportedError(
                    f"{name}, which computes the layers, does not take this adapter",
                    found="; ".join(map(str, made.reasons)),
                    mend="take another adapter, or name another kernel for linear",
                )
        (first, own), (second, other) = self._make_linear(down), self._make_linear(up)
        return _of_two(first, second), own + other

    def _make_linear(self, weight: torch.Tensor) -> tuple[Callable[..., torch.Tensor], int]:
        refused = []
        for kernel, name, alone in self._kernels:
            query = self._query("linear", *reversed(weight.shape), row_independent=alone)
            made = self._prepared(kernel, query, {"weight": weight})
            if not isinstance(made, Rejected):
                return made
            refused += [f"{name}: {reason}" for reason in made.reasons]
        raise UnsupportedError(
            "no kernel computes a linear map of this adapter",
            expected="one that keeps its weights exactly",
            found="; ".join(refused),
            mend="name another kernel, or install one",
        )

    def _prepared(
        self, kernel: Kernel, query: KernelQuery, weights: Mapping[str, torch.Tensor]
    ) -> tuple[Callable[..., torch.Tensor], int] | Rejected:
        """What to call, and the bytes that it takes."""
        with blaming(kernel, "answering for an adapter"):
            answer = kernel.answer(query)
        if isinstance(answer, Rejected):
            return answer
        held = {name: weight.to(self._facts.device) for name, weight in weights.items()}
        with blaming(kernel, "preparing an adapter"):
            prepared = kernel.prepare(query, held, {})
        if isinstance(prepared, Rejected):
            return prepared
        expect(kernel, "prepare", prepared, Prepared)
        own = sum(weight.nbytes for weight in held.values()) if prepared.keeps_weights else 0
        return prepared.call, own + prepared.num_bytes

    def _named(self, name: str) -> list[tuple[Kernel, str]]:
        query = self._query(LOW_RANK, *_USUAL[LOW_RANK], row_independent=True)
        row = select(self._registry, "kernel", query, operator=name)
        return [(cast(Kernel, row.instance), row.record.name)]

    def _preferred(self, op: str) -> list[tuple[Kernel, str]]:
        """Those of the ranking that compute each row on its own."""
        query = self._query(op, *_USUAL[op], row_independent=True)
        asked = ask_all(self._registry, "kernel", query, ranking=self._ranking)
        able = [
            row
            for row in asked
            if row.record.name in self._ranking and isinstance(row.answer, Supported)
        ]
        for row in able[:1]:
            self._registry.find("kernel", row.record.name)  # raises for a second claim to the name
        return [(cast(Kernel, row.instance), row.record.name) for row in able]

    def _query(self, op: str, *sizes: int, row_independent: bool = False) -> KernelQuery:
        return KernelQuery(
            op=op,
            platform=self._facts.name,
            device=self._facts.device,
            capability=self._facts.capability,
            features=self._facts.features,
            dtype=self._dtype,
            weight_dtype=self._dtype,
            sizes=dict(zip(_SIZES[op], sizes, strict=True)),
            row_independent=row_independent,
            lossless=True,
        )


def _of_two(
    down: Callable[[torch.Tensor], torch.Tensor], up: Callable[[torch.Tensor], torch.Tensor]
) -> Update:
    """An update out of two linear maps."""

    def update(x: torch.Tensor, y: torch.Tensor, at: torch.Tensor | None) -> None:
        if at is None:
            y += up(down(x))
            return
        added = up(down(x.index_select(0, at)))
        # index_add_ is some forty times slower here: it expects places that repeat.
        added += y.index_select(0, at)
        y.index_copy_(0, at, added)

    return update
