"""The decoder of the Llama family: norm, attention, norm, gated MLP, with residuals.

All variants come from `DecoderConfig`; there is no class per architecture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, cast

import torch
from torch import nn

from framework.contracts.attention_backend import AttentionParams
from framework.contracts.kernel import OperatorSite
from framework.contracts.model import AdapterSite, AttentionLayer, ForwardContext, Parameter
from framework_torch.models.config import DecoderConfig
from framework_torch.models.deferred import Deferring
from framework_torch.models.fused import Fused, LayerInput, LayerOutput, Members
from framework_torch.models.layers import Embedding, Head, Linear, Operated, RMSNorm, softcapped
from framework_torch.models.rope import inverse_frequencies
from framework_torch.models.table import parameter_table
from framework_torch.specs import attention_spec

# Cosine and sine.
Angles = tuple[torch.Tensor, torch.Tensor]


def layer_name(index: int) -> str:
    """The name under which a layer asks for attention."""
    return f"layers.{index}"


def _norm(config: DecoderConfig, size: int) -> RMSNorm:
    return RMSNorm(size, config.norm_eps, offset=config.family.norm_offset)


class Layer(nn.Module):
    """One block.  local: it has a window, and the rotary embedding of those that have."""

    def __init__(self, config: DecoderConfig, index: int) -> None:
        super().__init__()
        self.config = config
        self.name = layer_name(index)
        self.local = config.windows[index] is not None
        self.input_norm = _norm(config, config.hidden)
        self.qkv = Linear(config.hidden, sum(config.qkv_parts), config.qkv_bias)
        self.q_norm = self.k_norm = None
        if config.family.qk_norm:
            self.q_norm = _norm(config, config.head_size)
            self.k_norm = _norm(config, config.head_size)
        self.output = Linear(config.heads * config.head_size, config.hidden, config.output_bias)
        self.mlp_norm = _norm(config, config.hidden)
        self.gate_up = Linear(config.hidden, 2 * config.intermediate, config.mlp_bias)
        self.down = Linear(config.intermediate, config.hidden, config.mlp_bias)
        self.attention_end_norm = self.mlp_end_norm = None
        if config.family.sandwich:
            self.attention_end_norm = _norm(config, config.hidden)
            self.mlp_end_norm = _norm(config, config.hidden)
        self.before = LayerInput(
            config,
            _there(norm=self.input_norm, weight=self.qkv, q_norm=self.q_norm, k_norm=self.k_norm),
        )
        self.after = LayerOutput(
            config,
            _there(
                output=self.output,
                attention_end_norm=self.attention_end_norm,
                norm=self.mlp_norm,
                gate_up=self.gate_up,
                down=self.down,
                mlp_end_norm=self.mlp_end_norm,
            ),
        )
        self._heads = (config.heads, config.kv_heads, config.kv_heads)

    def forward(
        self, x: torch.Tensor, angles: tuple[Angles, Angles], context: ForwardContext
    ) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden].  angles: of layers that see all, and of local ones."""
        whole = self.before(x, *angles[self.local]).view(len(x), -1, self.config.head_size)
        q, k, v = whole.split(self._heads, dim=1)
        return cast(torch.Tensor, self.after(context.attend(self.name, q, k, v).flatten(1), x))


def _there(**members: Linear | RMSNorm | None) -> Members:
    """Those that this model has."""
    return {name: part for name, part in members.items() if part is not None}


def _modules(row: Parameter) -> list[str]:
    """What files of adapters call the parts."""
    return [name.removesuffix(".weight") for name in row.checkpoint]


def _spans(row: Parameter, linear: Linear) -> list[tuple[int, int]]:
    """Rows of the result that are a part's."""
    ends = list(accumulate(row.parts or (linear.sizes["out_features"],)))
    return list(zip([0, *ends], ends, strict=False))


class Decoder(nn.Module):
    """See `framework.contracts.model.Model`.  Built on the meta device, filled afterwards."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.vocab_size = config.vocab_size
        self.max_model_len: int | None = config.rope.longest
        self.embedding = Embedding(
            config.vocab_size, config.hidden, scaled=config.family.scale_embedding
        )
        self.layers = nn.ModuleList(Layer(config, index) for index in range(config.layers))
        self.norm = _norm(config, config.hidden)
        tied = self.embedding if config.tied else None
        self.head = Head(config.hidden, config.vocab_size, tied)
        # Ones unless a file brings its own; float32 whatever the weights are.
        self.rotary_divisors = nn.Parameter(torch.empty(config.head_size // 2), requires_grad=False)
        self._frequencies: tuple[tuple[torch.Tensor, float], ...] = ()

    def attention_layers(self, cache_dtype: str) -> Mapping[str, AttentionLayer]:
        config = self.config
        return {
            layer_name(index): AttentionLayer(
                spec=attention_spec(
                    config.kv_heads, config.head_size, config.head_size, cache_dtype, window
                ),
                num_heads=config.heads,
                params=AttentionParams(scale=config.scale, window=window, softcap=config.softcap),
            )
            for index, window in enumerate(config.windows)
        }

    def operators(self) -> Mapping[str, OperatorSite]:
        """By the name of their module; those that stand for others before these.  First what shares
        its weight, which may be large, and would else be there until the end."""
        parts = [(name, part) for name, part in self.named_modules() if isinstance(part, Operated)]
        found = dict(sorted(parts, key=lambda named: not named[1].shared))
        names = {part: name for name, part in found.items()}
        whole = {name: part for name, part in found.items() if isinstance(part, Fused)}
        for part in whole.values():
            part.parts = tuple(names[member] for member in part.members.values())
        shared = {name: part for name, part in found.items() if part.shared}
        return {**shared, **whole, **found}

    def named_parameters(self, *arguments: Any, **more: Any) -> Iterator[tuple[str, nn.Parameter]]:
        """As of any module; what is deferred is made."""
        for part in self.modules():
            if isinstance(part, Deferring):
                part.settle()
        return super().named_parameters(*arguments, **more)

    def adapter_sites(self) -> Mapping[str, AdapterSite]:
        """As the parameter table has them."""
        return {
            row.name: AdapterSite(
                in_features=linear.sizes["in_features"],
                out_features=linear.sizes["out_features"],
                parts=dict(zip(_modules(row), _spans(row, linear), strict=True)),
                wrap=linear.wrap,
            )
            for row in parameter_table(self.config)
            if row.lora_targets
            for linear in (cast(Linear, self.get_submodule(row.name.rpartition(".")[0])),)
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
        return softcapped(self.head(hidden).float(), self.config.final_softcap)

    def _angles(self, positions: torch.Tensor, dtype: torch.dtype) -> tuple[Angles, Angles]:
        """Of layers that see all, and of local ones: cos and sin [T, head_size / 2].
        Positions are exact in float32 up to 2**24."""
        if not self._frequencies:
            self._frequencies = self._read_frequencies()
        at = positions[:, None].float()
        made = [
            tuple((turn(at * frequencies) * magnitude).to(dtype) for turn in (torch.cos, torch.sin))
            for frequencies, magnitude in self._frequencies
        ]
        return cast(tuple[Angles, Angles], (made[0], made[-1]))

    def _read_frequencies(self) -> tuple[tuple[torch.Tensor, float], ...]:
        """One entry when all layers turn alike, else two."""
        config, divisors = self.config, self.rotary_divisors.float()
        frequencies, magnitude = inverse_frequencies(config.rope, config.head_size)
        whole = frequencies.to(divisors.device) / divisors, magnitude
        if config.local_rope == config.rope:
            return (whole,)
        frequencies, magnitude = inverse_frequencies(config.local_rope, config.head_size)
        return whole, (frequencies.to(divisors.device), magnitude)
