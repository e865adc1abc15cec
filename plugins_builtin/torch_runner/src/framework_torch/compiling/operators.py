"""Operators of `framework.contracts.kernel.OPERATORS` as functions of tensors alone, to be
compiled: weights come behind the other arguments, in the order of `weights`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from framework_torch.models.layers import (
    ACTIVATION_TRAITS,
    ACTIVATIONS,
    offset_rms_norm,
    rms_norm,
    rotate,
)

_BY_TRAIT: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    trait: ACTIVATIONS[name] for name, traits in ACTIVATION_TRAITS.items() for trait in traits
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One variant of an operator.  weights: names of those that follow the other arguments."""

    weights: tuple[str, ...]
    sizes: tuple[tuple[str, int], ...]
    traits: tuple[str, ...]
    eps: float

    def _named(self, weights: tuple[torch.Tensor, ...]) -> Mapping[str, torch.Tensor]:
        return dict(zip(self.weights, weights, strict=True))

    def _norm(self, x: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        """x itself where there is no such norm."""
        if weight is None:
            return x
        compute = offset_rms_norm if "offset" in self.traits else rms_norm
        return compute(x, weight, self.eps)


class LayerInput(Operation):
    """The operator layer_input."""

    inputs = ("features", "half_head", "half_head")

    def __call__(
        self,
        x: torch.Tensor,
        cosines: torch.Tensor,
        sines: torch.Tensor,
        *weights: torch.Tensor,
    ) -> torch.Tensor:
        w, sizes = self._named(weights), dict(self.sizes)
        whole = F.linear(self._norm(x, w["norm"]), w["weight"], w.get("bias"))
        heads = whole.unflatten(-1, (-1, sizes["head_size"]))
        q, k, v = heads.split((sizes["heads"], sizes["kv_heads"], sizes["kv_heads"]), dim=1)
        q, k = self._norm(q, w.get("q_norm")), self._norm(k, w.get("k_norm"))
        angles = cosines[:, None], sines[:, None]
        return torch.cat((rotate(q, *angles), rotate(k, *angles), v), dim=1).flatten(1)


class LayerOutput(Operation):
    """The operator layer_output."""

    inputs = ("in_features", "features")

    def __call__(
        self, attended: torch.Tensor, x: torch.Tensor, *weights: torch.Tensor
    ) -> torch.Tensor:
        w = self._named(weights)
        added = F.linear(attended, w["output"], w.get("output_bias"))
        x = x + self._norm(added, w.get("attention_end_norm"))
        both = F.linear(self._norm(x, w["norm"]), w["gate_up"], w.get("gate_up_bias"))
        gate, up = both.chunk(2, dim=-1)
        added = F.linear(self._activated(gate) * up, w["down"], w.get("down_bias"))
        return x + self._norm(added, w.get("mlp_end_norm"))

    def _activated(self, gate: torch.Tensor) -> torch.Tensor:
        for trait in self.traits:
            if trait in _BY_TRAIT:
                return _BY_TRAIT[trait](gate)
        return F.silu(gate)


_KINDS: Mapping[str, type[LayerInput] | type[LayerOutput]] = {
    "layer_input": LayerInput,
    "layer_output": LayerOutput,
}


def operation_of(
    op: str,
    weights: tuple[str, ...],
    sizes: Mapping[str, int],
    traits: frozenset[str],
    constants: Mapping[str, float],
) -> LayerInput | LayerOutput | None:
    """The function of a use of an operator; None for one that is not compiled."""
    kind = _KINDS.get(op)
    if kind is None:
        return None
    return kind(
        weights=weights,
        sizes=tuple(sorted(sizes.items())),
        traits=tuple(sorted(traits)),
        eps=constants["eps"],
    )
