"""The parameter table of the decoder: which tensors it has and what files call them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from framework.contracts.model import Parameter
from framework_torch.gguf.transforms import (
    GEMMA_NORM_MINUS_ONE,
    LLAMA_ROPE_PERMUTE,
    undo_gemma_norm,
    undo_rope_permute,
)
from framework_torch.models.config import DecoderConfig

if TYPE_CHECKING:
    import torch

# Tensors in files that carry nothing: older checkpoints stored the rotary frequencies.
IGNORED = (".rotary_emb.inv_freq",)

# A layer's norms: our name, the checkpoint's, GGUF's.
_PLAIN = (
    ("input_norm", "input_layernorm", "attn_norm"),
    ("mlp_norm", "post_attention_layernorm", "ffn_norm"),
)
_SANDWICH = (
    ("input_norm", "input_layernorm", "attn_norm"),
    ("attention_end_norm", "post_attention_layernorm", "post_attention_norm"),
    ("mlp_norm", "pre_feedforward_layernorm", "ffn_norm"),
    ("mlp_end_norm", "post_feedforward_layernorm", "post_ffw_norm"),
)


def transforms(config: DecoderConfig) -> Mapping[str, Callable[[torch.Tensor, int], torch.Tensor]]:
    """By the name in `Parameter.gguf_transform`: (tensor, index of the part) -> tensor."""

    def rotary(tensor: torch.Tensor, part: int) -> torch.Tensor:
        """q and k, the first two parts, were permuted; v was not."""
        return undo_rope_permute(tensor, len(tensor) // config.head_size) if part < 2 else tensor

    return {
        LLAMA_ROPE_PERMUTE: rotary,
        GEMMA_NORM_MINUS_ONE: lambda tensor, part: undo_gemma_norm(tensor),
    }


def parameter_table(config: DecoderConfig) -> tuple[Parameter, ...]:
    """All parameters, in model order; a tied one names the parameter it shares."""
    return (
        Parameter(
            name="embedding.weight",
            checkpoint=("model.embed_tokens.weight",),
            gguf=("token_embd.weight",),
            shard_axis=0,
        ),
        *(row for index in range(config.layers) for row in _layer(config, index)),
        _norm(config, "norm", "model.norm", "output_norm"),
        Parameter(
            name="head.weight",
            checkpoint=("lm_head.weight",),
            gguf=("output.weight",),
            shard_axis=0,
            quantizable=True,
            tied_to="embedding.weight" if config.tied else None,
        ),
        # Llama 3.1's scaling is stored by GGUF files as divisors of the frequencies.
        Parameter(
            name="rotary_divisors", checkpoint=(), gguf=("rope_freqs.weight",), optional=True
        ),
    )


def _layer(config: DecoderConfig, index: int) -> Iterator[Parameter]:
    ours, theirs, gguf = f"layers.{index}", f"model.layers.{index}", f"blk.{index}"
    attention, mlp = f"{theirs}.self_attn", f"{theirs}.mlp"
    for name, theirs_too, gguf_too in _SANDWICH if config.family.sandwich else _PLAIN:
        yield _norm(config, f"{ours}.{name}", f"{theirs}.{theirs_too}", f"{gguf}.{gguf_too}")
    qkv = ("q_proj", "k_proj", "v_proj")
    for kind in ("weight", "bias") if config.qkv_bias else ("weight",):
        yield Parameter(
            name=f"{ours}.qkv.{kind}",
            checkpoint=tuple(f"{attention}.{part}.{kind}" for part in qkv),
            gguf=tuple(f"{gguf}.attn_{part}.{kind}" for part in "qkv"),
            parts=config.qkv_parts,
            shard_axis=0,
            quantizable=kind == "weight",
            lora_targets=qkv if kind == "weight" else (),
            gguf_transform=LLAMA_ROPE_PERMUTE if config.family.gguf_rotary else None,
        )
    if config.family.qk_norm:
        for part in "qk":
            name = f"{part}_norm"
            yield _norm(config, f"{ours}.{name}", f"{attention}.{name}", f"{gguf}.attn_{name}")
    yield from _linear(
        f"{ours}.output", f"{attention}.o_proj", f"{gguf}.attn_output", "o_proj", config.output_bias
    )
    both = ("gate_proj", "up_proj")
    for kind in ("weight", "bias") if config.mlp_bias else ("weight",):
        yield Parameter(
            name=f"{ours}.gate_up.{kind}",
            checkpoint=tuple(f"{mlp}.{part}.{kind}" for part in both),
            gguf=tuple(f"{gguf}.ffn_{part}.{kind}" for part in ("gate", "up")),
            parts=(config.intermediate,) * 2,
            shard_axis=0,
            quantizable=kind == "weight",
            lora_targets=both if kind == "weight" else (),
        )
    yield from _linear(
        f"{ours}.down", f"{mlp}.down_proj", f"{gguf}.ffn_down", "down_proj", config.mlp_bias
    )


def _norm(config: DecoderConfig, ours: str, theirs: str, gguf: str) -> Parameter:
    return Parameter(
        name=f"{ours}.weight",
        checkpoint=(f"{theirs}.weight",),
        gguf=(f"{gguf}.weight",),
        gguf_transform=GEMMA_NORM_MINUS_ONE if config.family.norm_offset else None,
    )


def _linear(ours: str, theirs: str, gguf: str, target: str, bias: bool) -> Iterator[Parameter]:
    """A projection back to the hidden size, split over its inputs."""
    yield Parameter(
        name=f"{ours}.weight",
        checkpoint=(f"{theirs}.weight",),
        gguf=(f"{gguf}.weight",),
        shard_axis=1,
        quantizable=True,
        lora_targets=(target,),
    )
    if bias:
        yield Parameter(name=f"{ours}.bias", checkpoint=(f"{theirs}.bias",), gguf=(f"{gguf}.bias",))
