"""The decoder of the Llama family: norm, attention, norm, gated MLP, with residuals.

All variants come from `DecoderConfig`; there is no class per architecture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import nn

from framework.contracts.attention_backend import AttentionParams
from framework.contracts.kv_cache_spec import FullAttentionSpec
from framework.contracts.model import AttentionLayer, ForwardContext
from framework_torch.models.config import DecoderConfig
from framework_torch.models.layers import ACTIVATIONS, Embedding, Linear, RMSNorm, rotate
from framework_torch.models.rope import inverse_frequencies

Angles = tuple[torch.Tensor, torch.Tensor]


def layer_name(index: int) -> str:
    """The name under which a layer asks for attention."""
    return f"layers.{index}"


class Layer(nn.Module):
    """One block."""

    def __init__(self, config: DecoderConfig, index: int) -> None:
        super().__init__()
        self.config = config
        self.name = layer_name(index)
        self.input_norm = RMSNorm(config.hidden, config.norm_eps)
        self.qkv = Linear(config.hidden, sum(config.qkv_parts), config.qkv_bias)
        self.q_norm = self.k_norm = None
        if config.family.qk_norm:
            self.q_norm = RMSNorm(config.head_size, config.norm_eps)
            self.k_norm = RMSNorm(config.head_size, config.norm_eps)
        self.output = Linear(config.heads * config.head_size, config.hidden, config.output_bias)
        self.mlp_norm = RMSNorm(config.hidden, config.norm_eps)
        self.gate_up = Linear(config.hidden, 2 * config.intermediate, config.mlp_bias)
        self.down = Linear(config.intermediate, config.hidden, config.mlp_bias)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: torch.Tensor, angles: Angles, context: ForwardContext) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]."""
        x = x + self._attention(self.input_norm(x), angles, context)
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, dim=-1)
        return cast(torch.Tensor, x + self.down(self.activation(gate) * up))

    def _attention(self, x: torch.Tensor, angles: Angles, context: ForwardContext) -> torch.Tensor:
        size = self.config.head_size
        q, k, v = (
            part.unflatten(-1, (-1, size))
            for part in self.qkv(x).split(self.config.qkv_parts, dim=-1)
        )
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = rotate(q, *angles), rotate(k, *angles)
        return cast(torch.Tensor, self.output(context.attend(self.name, q, k, v).flatten(1)))


class Decoder(nn.Module):
    """See `framework.contracts.model.Model`.  Built on the meta device, filled afterwards."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.vocab_size = config.vocab_size
        self.max_model_len: int | None = config.rope.longest
        self.embedding = Embedding(config.vocab_size, config.hidden)
        self.layers = nn.ModuleList(Layer(config, index) for index in range(config.layers))
        self.norm = RMSNorm(config.hidden, config.norm_eps)
        self.head = Linear(config.hidden, config.vocab_size, bias=False)
        # Ones unless a file brings its own; float32 whatever the weights are.
        self.rotary_divisors = nn.Parameter(torch.empty(config.head_size // 2), requires_grad=False)
        self._frequencies: tuple[torch.Tensor, float] | None = None

    def attention_layers(self, cache_dtype: str) -> Mapping[str, AttentionLayer]:
        config = self.config
        spec = FullAttentionSpec(
            num_kv_heads=config.kv_heads,
            head_size=config.head_size,
            head_size_v=config.head_size,
            dtype=cache_dtype,
        )
        return {
            layer_name(index): AttentionLayer(
                spec=spec,
                num_heads=config.heads,
                params=AttentionParams(scale=config.head_size**-0.5, window=window),
            )
            for index, window in enumerate(config.windows)
        }

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        return cast(torch.Tensor, self.embedding(ids))

    def forward(
        self,
        hidden: torch.Tensor,
        positions: torch.Tensor,
        context: ForwardContext,
        layers: range | None = None,
        taps: Sequence[int] = (),
    ) -> Any:
        """As in the contract; the final norm is applied when `layers` holds the last layer.
        With taps: (hidden, {layer: hidden after it, before the norm})."""
        span = range(len(self.layers)) if layers is None else layers
        angles = self._angles(positions, hidden.dtype)
        tapped: dict[int, torch.Tensor] = {}
        for index in span:
            hidden = self.layers[index](hidden, angles, context)
            if index in taps:
                tapped[index] = hidden
        if len(self.layers) - 1 in span:
            hidden = self.norm(hidden)
        return (hidden, tapped) if taps else hidden

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return cast(torch.Tensor, self.head(hidden)).float()

    def _angles(self, positions: torch.Tensor, dtype: torch.dtype) -> Angles:
        """cos and sin [T, 1, head_size / 2].  Positions are exact in float32 up to 2**24."""
        if self._frequencies is None:
            frequencies, magnitude = inverse_frequencies(self.config.rope, self.config.head_size)
            divisors = self.rotary_divisors.float()
            self._frequencies = frequencies.to(divisors.device) / divisors, magnitude
        frequencies, magnitude = self._frequencies
        turned = positions[:, None, None].float() * frequencies
        return (turned.cos() * magnitude).to(dtype), (turned.sin() * magnitude).to(dtype)
