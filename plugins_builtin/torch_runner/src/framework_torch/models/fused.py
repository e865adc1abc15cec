"""What a decoder layer does before and after attention: one use of an operator each, which a
kernel may compute in one call; else it is computed operator by operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch

from framework_torch.models.layers import ACTIVATION_TRAITS, ACTIVATIONS, Operated, rotate

if TYPE_CHECKING:
    from framework.contracts.kernel import Prepared
    from framework.contracts.weight_rows import WeightRows
    from framework_torch.models.config import DecoderConfig
    from framework_torch.models.layers import Linear, RMSNorm

T = TypeVar("T")
Members = Mapping[str, "Linear | RMSNorm"]


class Fused(Operated):
    """A use that stands for others, its members.

    members: by the name of their weight in the operator, in the order of computing.  These keep
    their own places in the model, and are no submodules of this.
    """

    def __init__(
        self, sizes: Mapping[str, int], members: Members, traits: frozenset[str], eps: float
    ) -> None:
        biases = {f"{_stem(name)}bias" for name, part in members.items() if "bias" in part.traits}
        offset = {"offset"} if any("offset" in part.traits for part in members.values()) else set()
        super().__init__(sizes, constants={"eps": eps}, traits=traits | biases | offset)
        self._members = (members,)
        self._changes: dict[str, Any] = {}

    @property
    def members(self) -> Members:
        """As above."""
        return self._members[0]

    def weights(self) -> Mapping[str, torch.Tensor]:
        return self._gathered(lambda part: part.weights())

    def sources(self) -> Mapping[str, torch.Tensor | WeightRows]:
        return self._gathered(lambda part: part.sources())

    def _gathered(self, of: Callable[[Linear | RMSNorm], Mapping[str, T]]) -> dict[str, T]:
        """Of all members, by the names of the operator."""
        found = {}
        for name, part in self.members.items():
            own = of(part)
            found[name] = own["weight"]
            if "bias" in own:
                found[f"{_stem(name)}bias"] = own["bias"]
        return found

    def adopt(self, prepared: Prepared) -> None:
        super().adopt(prepared)
        for name, part in self.members.items():
            part.taken_by = partial(self._change, name)

    def _change(self, name: str, change: Any) -> None:
        """Adapters change a member that the kernel computes as a part of this."""
        self._changes[name] = change
        call = self.forward

        def changed(*args: torch.Tensor) -> torch.Tensor:
            updates = {}
            for name, change in self._changes.items():
                own = change.updates()
                if own:
                    updates[name] = own
            return cast(torch.Tensor, call.updated(*args, updates) if updates else call(*args))

        if len(self._changes) == 1:
            self.forward = changed

    def release(self) -> None:
        for part in self.members.values():
            part.release()


def _stem(name: str) -> str:
    """Of the name of a bias."""
    return "" if name == "weight" else f"{name}_"


class LayerInput(Fused):
    """x [T, hidden] -> [T, heads + 2 kv_heads, head_size], flattened to [T, sum of these]."""

    op = "layer_input"

    def __init__(self, config: DecoderConfig, members: Members) -> None:
        heads = {"q_norm", "k_norm"} if "q_norm" in members else set()
        sizes = {
            "features": config.hidden,
            "out_features": sum(config.qkv_parts),
            "heads": config.heads,
            "kv_heads": config.kv_heads,
            "head_size": config.head_size,
            "half_head": config.head_size // 2,
        }
        super().__init__(sizes, members, frozenset(heads), config.norm_eps)

    def forward(self, x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
        """cosines, sines: [T, head_size / 2]."""
        part, sizes = self.members, self.sizes
        whole = part["weight"](part["norm"](x)).unflatten(-1, (-1, sizes["head_size"]))
        q, k, v = whole.split((sizes["heads"], sizes["kv_heads"], sizes["kv_heads"]), dim=1)
        if "q_norm" in part:
            q, k = part["q_norm"](q), part["k_norm"](k)
        angles = cosines[:, None], sines[:, None]
        return torch.cat((rotate(q, *angles), rotate(k, *angles), v), dim=1).flatten(1)


class LayerOutput(Fused):
    """attended [T, heads * head_size], x [T, hidden] -> [T, hidden]."""

    op = "layer_output"

    def __init__(self, config: DecoderConfig, members: Members) -> None:
        traits = {"attention_end_norm", "mlp_end_norm"} & members.keys()
        traits |= ACTIVATION_TRAITS[config.activation]
        sizes = {
            "in_features": config.heads * config.head_size,
            "features": config.hidden,
            "both": 2 * config.intermediate,
            "intermediate": config.intermediate,
        }
        super().__init__(sizes, members, frozenset(traits), config.norm_eps)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, attended: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        part = self.members
        x = x + self._ended("attention_end_norm", part["output"](attended))
        gate, up = part["gate_up"](part["norm"](x)).chunk(2, dim=-1)
        added = part["down"](self.activation(gate) * up)
        return cast(torch.Tensor, x + self._ended("mlp_end_norm", added))

    def _ended(self, name: str, x: torch.Tensor) -> torch.Tensor:
        norm = self.members.get(name)
        return x if norm is None else cast(torch.Tensor, norm(x))
