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
    mlp_bias).  qk_norm: RMS norm over each head of q and k.  norm_offset: the factor of a norm
    is 1 + weight.  sandwich: attention and MLP have a norm behind them too.  scale_embedding:
    by the root of the hidden size.  window: on no layer, on all by `sliding_window`, by layer
    as Qwen's configurations say, or in a pattern as Gemma's do.  query_scalar: scores are
    divided by the root of `query_pre_attn_scalar`, not of the head size.  softcap,
    final_softcap: scores and logits are limited as the configuration says.  rope_thetas:
    default bases of layers that see all and of those with a window, where the two differ.
    activation: key of the configuration.  head_dim: None derives it from the hidden size.
    defaults: values of absent keys.  gguf_rotary: GGUF files hold rows of q and k in the
    order of interleaved rotary pairs.
    """

    architecture: str
    qkv_bias: Literal["always", "never", "config"] = "never"
    output_bias: Literal["never", "config"] = "never"
    mlp_bias: Literal["never", "config"] = "never"
    qk_norm: bool = False
    norm_offset: bool = False
    sandwich: bool = False
    scale_embedding: bool = False
    window: Literal["none", "all", "by_layer", "pattern"] = "none"
    query_scalar: bool = False
    softcap: bool = False
    final_softcap: bool = False
    rope_thetas: tuple[float, float] | None = None
    activation: str = "hidden_act"
    head_dim: int | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    gguf_rotary: bool = False


_QWEN: Mapping[str, Any] = {
    "max_position_embeddings": 32768,
    "num_key_value_heads": 32,
    "sliding_window": 4096,
    "max_window_layers": 28,
}
_GEMMA: Mapping[str, Any] = {
    "hidden_activation": "gelu_pytorch_tanh",
    "num_key_value_heads": 4,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "tie_word_embeddings": True,
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
        Family(
            architecture="Gemma2ForCausalLM",
            qkv_bias="config",
            output_bias="config",
            norm_offset=True,
            sandwich=True,
            scale_embedding=True,
            window="pattern",
            query_scalar=True,
            softcap=True,
            final_softcap=True,
            activation="hidden_activation",
            head_dim=256,
            defaults={
                **_GEMMA,
                "max_position_embeddings": 8192,
                "sliding_window_pattern": 2,
                "attn_logit_softcapping": 50.0,
                "final_logit_softcapping": 30.0,
            },
        ),
        Family(
            architecture="Gemma3ForCausalLM",
            qkv_bias="config",
            output_bias="config",
            qk_norm=True,
            norm_offset=True,
            sandwich=True,
            scale_embedding=True,
            window="pattern",
            query_scalar=True,
            final_softcap=True,
            rope_thetas=(1_000_000.0, 10_000.0),
            activation="hidden_activation",
            head_dim=256,
            defaults={
                **_GEMMA,
                "max_position_embeddings": 131072,
                "sliding_window_pattern": 6,
            },
        ),
    )
}
