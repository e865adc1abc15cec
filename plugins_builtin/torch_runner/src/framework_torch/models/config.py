"""A configuration read into the decoder's own terms.  What is not understood is a rejection,
never a guess."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from framework.contracts.base import Rejected
from framework_torch.models.families import Family
from framework_torch.models.reader import OTHER, Reader
from framework_torch.models.rope import Rope, RopeError, read_rope
from framework_torch.models.windows import FULL, SLIDING, read_windows

ACTIVATIONS = ("silu", "swish", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu")
# Far beyond any model; a damaged number must not build layers until memory ends.
MOST_LAYERS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """Everything that the decoder is built from.

    windows: one per layer, None sees all.  rope, local_rope: of layers that see all, and of
    those with a window.  scale: of attention scores.  softcap, final_softcap: limits of
    scores and logits, or None.
    """

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
    local_rope: Rope
    windows: tuple[int | None, ...]
    scale: float
    softcap: float | None
    final_softcap: float | None

    @property
    def qkv_parts(self) -> tuple[int, int, int]:
        """Rows of q, k and v in the fused projection."""
        kv = self.kv_heads * self.head_size
        return self.heads * self.head_size, kv, kv

    @property
    def parameters(self) -> int:
        """Numbers in the weights but those of norms and biases, which are few."""
        attention = sum(self.qkv_parts) + self.heads * self.head_size
        layer = self.hidden * (attention + 3 * self.intermediate)
        return self.layers * layer + self.vocab_size * self.hidden * (1 if self.tied else 2)


def read_config(family: Family, config: Mapping[str, Any]) -> DecoderConfig | Rejected:
    """The configuration, or all reasons why it cannot be built; final if it is at fault."""
    reader = Reader(family, config)
    heads = reader.size("num_attention_heads")
    kv_heads = reader.size("num_key_value_heads", default=heads)
    hidden = reader.size("hidden_size")
    layers = reader.size("num_hidden_layers", most=MOST_LAYERS)
    head_size = reader.size("head_dim", default=family.head_dim or hidden // heads)
    _check_heads(reader, heads, kv_heads, head_size)
    _check_strangers(reader)
    rope, local_rope = _ropes(reader)
    scalar = reader.number("query_pre_attn_scalar", 1.0) if family.query_scalar else head_size
    result = DecoderConfig(
        family=family,
        vocab_size=reader.size("vocab_size"),
        hidden=hidden,
        intermediate=reader.size("intermediate_size"),
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        norm_eps=reader.number("rms_norm_eps", 1e-6, zero=True),
        activation=_activation(reader),
        qkv_bias=reader.bias(family.qkv_bias, "attention_bias"),
        output_bias=reader.bias(family.output_bias, "attention_bias"),
        mlp_bias=reader.bias(family.mlp_bias, "mlp_bias"),
        tied=reader.flag("tie_word_embeddings"),
        rope=rope,
        local_rope=local_rope,
        windows=read_windows(reader, layers),
        scale=scalar**-0.5,
        softcap=_softcap(reader, "attn_logit_softcapping", family.softcap),
        final_softcap=_softcap(reader, "final_logit_softcapping", family.final_softcap),
    )
    return reader.rejected() or result


def _activation(reader: Reader) -> str:
    key = reader.family.activation
    name = reader.get(key, "silu")
    if not isinstance(name, str):
        reader.fault(key, name, "the name of an activation")
    elif name not in ACTIVATIONS:
        reader.reject(key, name, f"one of {', '.join(ACTIVATIONS)}", OTHER)
    return str(name)


def _softcap(reader: Reader, key: str, known: bool) -> float | None:
    value = reader.optional_number(key)
    if value is not None and not known:
        reader.reject(key, value, None, OTHER)
    return value


def _check_heads(reader: Reader, heads: int, kv_heads: int, head_size: int) -> None:
    if heads % kv_heads:
        reader.fault("num_key_value_heads", kv_heads, f"a divisor of num_attention_heads={heads}")
    if head_size % 2:
        reader.fault("head_dim", head_size, "an even number", "rotary pairs need two halves")


def _check_strangers(reader: Reader) -> None:
    """Keys that would change the arithmetic in a way that this decoder does not know."""
    if reader.config.get("quantization_config") is not None:
        reader.reject(
            "quantization_config",
            reader.config["quantization_config"],
            "weights that are not quantized",
            "use an unquantized checkpoint or a GGUF file",
        )
    for key, found in (("is_causal", False), ("use_bidirectional_attention", True)):
        if reader.config.get(key) is found:
            reader.reject(key, found, not found, OTHER)


def _ropes(reader: Reader) -> tuple[Rope, Rope]:
    """Rotary embeddings of the layers that see everything, and of those with a window."""
    longest = reader.size("max_position_embeddings")
    try:
        if reader.family.rope_thetas is None:
            rope = read_rope(reader.config, longest)
            return rope, rope
        whole, local = _by_kind(reader)
        return read_rope(whole, longest), read_rope(local, longest)
    except RopeError as error:
        if error.fault:
            reader.fault(error.field, error.found, error.needed)
        else:
            reader.reject(error.field, error.found, error.needed, OTHER)
        rope = Rope(variant="default", theta=1.0, trained=longest, extended=longest)
        return rope, rope


def _by_kind(reader: Reader) -> tuple[dict[str, Any], dict[str, Any]]:
    """Gemma 3's two ways to write it, each kind as a configuration of its own: a mapping by
    type of layer, or keys of which `rope_scaling` means the unlimited layers only."""
    config, thetas = reader.config, reader.family.rope_thetas
    assert thetas is not None
    given = config.get("rope_parameters")
    given = {} if given is None else given
    strange = not isinstance(given, Mapping) or set(given) - {FULL, SLIDING}
    if strange or not all(isinstance(part or {}, Mapping) for part in given.values()):
        raise RopeError("rope_parameters", given, f"mappings for {FULL} and {SLIDING}")
    scaling = config.get("rope_scaling")
    if not isinstance(scaling or {}, Mapping):
        raise RopeError("rope_scaling", scaling, "a mapping", fault=True)
    whole = {**(given.get(FULL) or {}), **(scaling or {})}
    local = dict(given.get(SLIDING) or {})
    for part, key, theta in zip(
        (whole, local), ("rope_theta", "rope_local_base_freq"), thetas, strict=True
    ):
        if part.get("rope_theta") is None:
            part["rope_theta"] = theta if config.get(key) is None else config[key]
    return {"rope_parameters": whole}, {"rope_parameters": local}
