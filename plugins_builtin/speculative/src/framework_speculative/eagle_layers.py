"""The layers of an EAGLE head.  Importing it imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from framework.errors import ModelError
from framework_speculative.files import Tensors
from framework_speculative.sizes import whole

if TYPE_CHECKING:
    from framework.contracts.model import ForwardContext, Model
    from framework.contracts.model_source import ModelFiles

NAME = "eagle.{}"
Linear = tuple[torch.Tensor, torch.Tensor | None]


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of the head, from its config.json."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    epsilon: float
    theta: float

    @staticmethod
    def of(files: ModelFiles, hidden: int) -> Shape:
        """Raises ModelError where it does not fit a model whose states have `hidden` numbers."""
        config: Mapping[str, Any] = files.config
        own, heads = whole(files, "hidden_size"), whole(files, "num_attention_heads")
        if own != hidden:
            raise ModelError(
                f"head {files.name!r} was made for another model",
                expected=f"hidden_size {hidden}",
                found=own,
            )
        if config.get("hidden_act", "silu") != "silu" or config.get("rope_scaling"):
            raise ModelError(
                f"head {files.name!r} cannot be served",
                expected="hidden_act silu, and no rope_scaling",
                found=f"{config.get('hidden_act')!r}, {config.get('rope_scaling')!r}",
            )
        return Shape(
            layers=whole(files, "num_hidden_layers", 1),
            hidden=hidden,
            heads=heads,
            kv_heads=whole(files, "num_key_value_heads", heads),
            head_size=whole(files, "head_dim", hidden // heads),
            intermediate=whole(files, "intermediate_size"),
            epsilon=float(config.get("rms_norm_eps", 1e-6)),
            theta=float(config.get("rope_theta", 10000.0)),
        )


class EagleLayers:
    """fc, decoder layers (the first without a norm before it), and what reads a token.

    The embedding and the reading of tokens are the target's, unless the files bring their own.
    """

    def __init__(self, files: ModelFiles, hidden: int, target: Model, device: str) -> None:
        self.shape = shape = Shape.of(files, hidden)
        self._target = target
        tensors = Tensors(files, device, "model.")
        self._join: Linear = (
            tensors.take("fc.weight", hidden, 2 * hidden),
            tensors.optional("fc.bias", hidden),
        )
        vocabulary = target.vocab_size
        self._embedding = tensors.optional("embed_tokens.weight", vocabulary, hidden)
        self._head = tensors.optional("lm_head.weight", vocabulary, hidden)
        self._parts = [_layer(tensors, f"layers.{index}.", shape) for index in range(shape.layers)]
        tensors.check_empty()
        steps = torch.arange(0, shape.head_size, 2, dtype=torch.float32, device=device)
        self._frequencies = shape.theta ** (-steps / shape.head_size)

    def forward(
        self,
        hidden: torch.Tensor,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        context: ForwardContext,
    ) -> torch.Tensor:
        """hidden [T, H], the tokens after them int64 [T], positions int64 [T] -> [T, H]."""
        if self._embedding is None:
            embedded = self._target.embed(tokens).float()
        else:
            embedded = functional.embedding(tokens, self._embedding)
        x = functional.linear(torch.cat((embedded, hidden.float()), dim=-1), *self._join)
        angles = positions[:, None, None].float() * self._frequencies
        turns = angles.cos(), angles.sin()
        for index, part in enumerate(self._parts):
            x = self._layer(part, NAME.format(index), x, turns, context)
        return x.to(hidden.dtype)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[R, H] -> float32 [R, vocab]."""
        if self._head is None:
            return self._target.logits(hidden)
        return functional.linear(hidden.float(), self._head)

    def _layer(
        self,
        part: Mapping[str, Any],
        name: str,
        x: torch.Tensor,
        turns: tuple[torch.Tensor, torch.Tensor],
        context: ForwardContext,
    ) -> torch.Tensor:
        size = self.shape.head_size
        normed = x if part["input"] is None else self._norm(x, part["input"])
        q, k, v = (
            functional.linear(normed, *part[each]).unflatten(-1, (-1, size)) for each in "qkv"
        )
        attended = context.attend(name, rotate(q, *turns), rotate(k, *turns), v).flatten(1)
        x = x + functional.linear(attended, *part["o"])
        normed = self._norm(x, part["post"])
        gate = functional.silu(functional.linear(normed, part["gate"]))
        return x + functional.linear(gate * functional.linear(normed, part["up"]), part["down"])

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, (self.shape.hidden,), weight, self.shape.epsilon)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x [T, heads, size], cos and sin [T, 1, size / 2]: pairs are halves apart."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def _layer(tensors: Tensors, prefix: str, shape: Shape) -> dict[str, Any]:
    rows = {"q": shape.heads, "k": shape.kv_heads, "v": shape.kv_heads}
    part: dict[str, Any] = {}
    for name, heads in rows.items():
        place, size = f"{prefix}self_attn.{name}_proj.", heads * shape.head_size
        part[name] = (
            tensors.take(f"{place}weight", size, shape.hidden),
            tensors.optional(f"{place}bias", size),
        )
    inner = shape.heads * shape.head_size
    part["o"] = (tensors.take(f"{prefix}self_attn.o_proj.weight", shape.hidden, inner), None)
    part["gate"] = tensors.take(f"{prefix}mlp.gate_proj.weight", shape.intermediate, shape.hidden)
    part["up"] = tensors.take(f"{prefix}mlp.up_proj.weight", shape.intermediate, shape.hidden)
    part["down"] = tensors.take(f"{prefix}mlp.down_proj.weight", shape.hidden, shape.intermediate)
    part["input"] = tensors.optional(f"{prefix}input_layernorm.weight", shape.hidden)
    part["post"] = tensors.take(f"{prefix}post_attention_layernorm.weight", shape.hidden)
    return part
