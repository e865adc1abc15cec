"""What tells the decoder families apart, as data.

Defaults are those of the families' configuration classes: a config.json may leave them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One architecture.

    qkv_bias, output_bias, mlp_bias: "always", "never", or "config" (keys attention_bias and
    mlp_bias).  qk_norm: RMS norm over each head of q and k.  window: on no layer, on all by
    `sliding_window`, or by layer as Qwen's configurations say.  head_dim: None derives it
    from the hidden size.  defaults: values of absent keys.  gguf_rotary: GGUF files hold
    rows of q and k in the order of interleaved rotary pairs.
    """

    architecture: str
    qkv_bias: Literal["always", "never", "config"] = "never"
    output_bias: Literal["never", "config"] = "never"
    mlp_bias: Literal["never", "config"] = "never"
    qk_norm: bool = False
    window: Literal["none", "all", "by_layer"] = "none"
    head_dim: int | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    gguf_rotary: bool = False


_QWEN: Mapping[str, Any] = {
    "max_position_embeddings": 32768,
    "num_key_value_heads": 32,
    "sliding_window": 4096,
    "max_window_layers": 28,
}

FAMILIES: Mapping[str, Family] = {
    family.architecture: family
    for family in (
        Family(
            architecture="LlamaForCausalLM",
            qkv_bias="config",
            output_bias="config",
            mlp_bias="config",
            defaults={"max_position_embeddings": 2048},
            gguf_rotary=True,
        ),
        Family(
            architecture="MistralForCausalLM",
            window="all",
            defaults={
                "max_position_embeddings": 131072,
                "num_key_value_heads": 8,
                "sliding_window": 4096,
            },
            gguf_rotary=True,
        ),
        Family(
            architecture="Qwen2ForCausalLM", qkv_bias="always", window="by_layer", defaults=_QWEN
        ),
        Family(
            architecture="Qwen3ForCausalLM",
            qkv_bias="config",
            output_bias="config",
            qk_norm=True,
            window="by_layer",
            head_dim=128,
            defaults=_QWEN,
        ),
    )
}
