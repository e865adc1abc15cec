"""A configuration read into the decoder's own terms.  What is not understood is a rejection,
never a guess."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from framework.contracts.base import Rejection
from framework_torch.models.families import Family
from framework_torch.models.rope import Rope, RopeError, read_rope

ACTIVATIONS = ("silu", "swish", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu")
LARGEST = 2**31 - 1
# Far beyond any model; a damaged number must not build layers until memory ends.
MOST_LAYERS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """Everything that the decoder is built from.  windows: one per layer, None sees all."""

    family: Family
    vocab_size: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    norm_eps: float
    activation: str
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    tied: bool
    rope: Rope
    windows: tuple[int | None, ...]

    @property
    def qkv_parts(self) -> tuple[int, int, int]:
        """Rows of q, k and v in the fused projection."""
        kv = self.kv_heads * self.head_size
        return self.heads * self.head_size, kv, kv


class _Reader:
    """Reads keys and collects rejections, so that all reasons are known at once."""

    def __init__(self, family: Family, config: Mapping[str, Any]) -> None:
        self.family = family
        self.config = config
        self.reasons: list[Rejection] = []

    def get(self, key: str, default: Any = None) -> Any:
        return self.config.get(key, self.family.defaults.get(key, default))

    def reject(self, key: str, found: object, needed: object, remedy: str) -> None:
        self.reasons.append(
            Rejection(code=key, field=f"config.{key}", found=found, needed=needed, remedy=remedy)
        )

    def size(self, key: str, default: int | None = None, most: int = LARGEST) -> int:
        """An integer in [1, most]; 1 stands in after a rejection."""
        value = self.get(key)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= most:
            self.reject(key, value, f"an integer in [1, {most}]", "correct the model's config.json")
            return 1
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.get(key)
        value = default if value is None else value
        if not isinstance(value, bool):
            self.reject(key, value, "true or false", "correct the model's config.json")
            return default
        return value

    def number(self, key: str, default: float) -> float:
        value = self.get(key, default)
        good = isinstance(value, int | float) and not isinstance(value, bool)
        if not good or not 0 < value < math.inf:
            self.reject(key, value, "a finite number > 0", "correct the model's config.json")
            return default
        return float(value)

    def bias(self, rule: str, key: str) -> bool:
        return self.flag(key) if rule == "config" else rule == "always"


def read_config(family: Family, config: Mapping[str, Any]) -> DecoderConfig | tuple[Rejection, ...]:
    """The configuration, or all reasons why it cannot be built."""
    reader = _Reader(family, config)
    heads = reader.size("num_attention_heads")
    kv_heads = reader.size("num_key_value_heads", default=heads)
    hidden = reader.size("hidden_size")
    layers = reader.size("num_hidden_layers", most=MOST_LAYERS)
    head_size = reader.size("head_dim", default=family.head_dim or hidden // heads)
    activation = reader.get("hidden_act", "silu")
    if activation not in ACTIVATIONS:
        reader.reject(
            "hidden_act", activation, f"one of {', '.join(ACTIVATIONS)}", "use another runner"
        )
    _check_heads(reader, heads, kv_heads, head_size)
    _check_strangers(reader)
    result = DecoderConfig(
        family=family,
        vocab_size=reader.size("vocab_size"),
        hidden=hidden,
        intermediate=reader.size("intermediate_size"),
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        norm_eps=reader.number("rms_norm_eps", 1e-6),
        activation=str(activation),
        qkv_bias=reader.bias(family.qkv_bias, "attention_bias"),
        output_bias=reader.bias(family.output_bias, "attention_bias"),
        mlp_bias=reader.bias(family.mlp_bias, "mlp_bias"),
        tied=reader.flag("tie_word_embeddings"),
        rope=_rope(reader),
        windows=_windows(reader, layers),
    )
    return tuple(reader.reasons) if reader.reasons else result


def _check_heads(reader: _Reader, heads: int, kv_heads: int, head_size: int) -> None:
    if heads % kv_heads:
        reader.reject(
            "num_key_value_heads",
            kv_heads,
            f"a divisor of num_attention_heads={heads}",
            "correct the model's config.json",
        )
    if head_size % 2:
        reader.reject("head_dim", head_size, "an even number", "rotary pairs need two halves")


def _check_strangers(reader: _Reader) -> None:
    """Keys that would change the arithmetic in a way that this decoder does not know."""
    if reader.config.get("quantization_config") is not None:
        reader.reject(
            "quantization_config",
            reader.config["quantization_config"],
            "weights that are not quantized",
            "use an unquantized checkpoint or a GGUF file",
        )
    if reader.config.get("is_causal") is False:
        reader.reject("is_causal", False, True, "use a runner for bidirectional models")


def _rope(reader: _Reader) -> Rope:
    longest = reader.size("max_position_embeddings")
    try:
        return read_rope(reader.config, longest)
    except RopeError as error:
        reader.reject(error.field, error.found, error.needed, "use another runner")
        return Rope(variant="default", theta=1.0, trained=longest, extended=longest)


def _windows(reader: _Reader, layers: int) -> tuple[int | None, ...]:
    rule = reader.family.window
    if rule == "none" or (rule == "by_layer" and not reader.flag("use_sliding_window")):
        kinds = _layer_types(reader, layers) if rule == "by_layer" else None
        if kinds and "sliding_attention" in kinds:
            reader.reject(
                "layer_types",
                "sliding_attention",
                "use_sliding_window=true",
                "correct the model's config.json",
            )
        return (None,) * layers
    if reader.get("sliding_window") is None:
        return (None,) * layers
    window = reader.size("sliding_window")
    if rule == "all":
        return (window,) * layers
    kinds = _layer_types(reader, layers)
    if kinds is None:
        first = reader.get("max_window_layers")
        first = first if isinstance(first, int) else layers
        return tuple(window if index >= first else None for index in range(layers))
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def _layer_types(reader: _Reader, layers: int) -> tuple[str, ...] | None:
    kinds = reader.get("layer_types")
    if kinds is None:
        return None
    known = ("full_attention", "sliding_attention")
    if not isinstance(kinds, list | tuple) or any(kind not in known for kind in kinds):
        reader.reject("layer_types", kinds, f"a list of {' or '.join(known)}", "use another runner")
        return None
    if len(kinds) != layers:
        reader.reject("layer_types", len(kinds), f"{layers} entries", "correct config.json")
        return None
    return tuple(kinds)
