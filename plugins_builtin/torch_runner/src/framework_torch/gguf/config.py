"""A model's configuration from GGUF metadata, in the words of Transformers' config.json.

One row of data per architecture; what only some of them have is in the row's `extra`.
No torch here: the front end reads configurations too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from framework.errors import ModelError
from framework_text.gguf_head import MEND, GgufHead
from framework_text.gguf_vocabulary import end_ids, token_ids

Extra = Callable[["Keys"], dict[str, Any]]
_DTYPES = {1: "float16", 30: "bfloat16"}
_SAMPLING = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}


class Keys:
    """The metadata under the architecture's own prefix, typed and checked."""

    def __init__(self, head: GgufHead) -> None:
        self.head = head
        self.prefix = head.architecture

    def size(self, key: str, default: int | None = None) -> int:
        """An integer > 0; without a default a missing one is an error."""
        value = self.head.integer(f"{self.prefix}.{key}")
        value = default if value is None else value
        if value is None or not 0 < value < 1 << 32:
            raise self.wrong(key, "an integer > 0", value)
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number > 0, as the float32 in the file prints: 1e-05, not 9.99999975e-06."""
        value = self.head.number(f"{self.prefix}.{key}")
        if value is None:
            value = default
        if value is None or not 0 < value < float("inf"):
            raise self.wrong(key, "a finite number > 0", value)
        return float(f"{value:.7g}")

    def optional_size(self, key: str) -> int | None:
        return self.size(key) if self.has(key) else None

    def has(self, key: str) -> bool:
        return f"{self.prefix}.{key}" in self.head.metadata

    def text(self, key: str) -> str | None:
        return self.head.text(f"{self.prefix}.{key}")

    def wrong(self, key: str, expected: str, found: object) -> ModelError:
        return ModelError(
            f"{self.head.path} is damaged: the metadata key {self.prefix}.{key} is "
            + ("missing" if found is None else "impossible"),
            expected=expected,
            found=found,
            mend=MEND,
        )

    @property
    def head_dim(self) -> int:
        """Size of a head of queries and keys."""
        if self.has("attention.key_length"):
            return self.size("attention.key_length")
        hidden, heads = self.size("embedding_length"), self.size("attention.head_count")
        if hidden % heads:
            raise self.wrong("attention.head_count", f"a divisor of {hidden}", heads)
        return hidden // heads


def _has_tensor(keys: Keys, name: str) -> bool:
    return name in keys.head.tensors


def _llama(keys: Keys) -> dict[str, Any]:
    """Llama and whatever was stored as such: SmolLM2, Mistral, ...

    A window means Mistral; without one the two compute the same.
    """
    window = keys.optional_size("attention.sliding_window")
    common: dict[str, Any] = {"hidden_act": "silu"}
    if window is not None:
        return common | {
            "architectures": ["MistralForCausalLM"],
            "model_type": "mistral",
            "sliding_window": window,
        }
    return common | {
        "attention_bias": _has_tensor(keys, "blk.0.attn_q.bias"),
        "mlp_bias": _has_tensor(keys, "blk.0.ffn_up.bias"),
    }


def _qwen2(keys: Keys) -> dict[str, Any]:
    return {"hidden_act": "silu", "use_sliding_window": False}


def _qwen3(keys: Keys) -> dict[str, Any]:
    return _qwen2(keys) | {"attention_bias": _has_tensor(keys, "blk.0.attn_q.bias")}


def _gemma(keys: Keys) -> dict[str, Any]:
    return {"hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh"}


def _query_scalar(keys: Keys, largest: int) -> int:
    """The largest model of a generation scales queries by its width per head, the others by
    the size of a head; files do not say, llama.cpp knows it by the number of layers."""
    if keys.size("block_count") == largest:
        return keys.size("embedding_length") // keys.size("attention.head_count")
    return keys.head_dim


def _gemma2(keys: Keys) -> dict[str, Any]:
    layers = keys.size("block_count")
    return _gemma(keys) | {
        "sliding_window": keys.size("attention.sliding_window", 4096),
        "layer_types": [
            "full_attention" if index % 2 else "sliding_attention" for index in range(layers)
        ],
        "attn_logit_softcapping": keys.number("attn_logit_softcapping", 50.0),
        "final_logit_softcapping": keys.number("final_logit_softcapping", 30.0),
        "query_pre_attn_scalar": _query_scalar(keys, largest=46),
    }


def _gemma3(keys: Keys) -> dict[str, Any]:
    """Every sixth layer sees everything; the others have a window and a rotary base of their
    own, which is never scaled."""
    layers = keys.size("block_count")
    return _gemma(keys) | {
        "sliding_window": keys.size("attention.sliding_window"),
        "layer_types": [
            "sliding_attention" if (index + 1) % 6 else "full_attention" for index in range(layers)
        ],
        "query_pre_attn_scalar": _query_scalar(keys, largest=62),
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "rope_parameters": {
            "full_attention": _rope(keys, default_base=1_000_000.0),
            "sliding_attention": {
                "rope_type": "default",
                "rope_theta": keys.number("rope.freq_base_swa", 10_000.0),
            },
        },
    }


@dataclass(frozen=True, slots=True)
class Architecture:
    """architecture, model_type: of Transformers.  extra: overrides the common keys."""

    architecture: str
    model_type: str
    extra: Extra


ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": Architecture("LlamaForCausalLM", "llama", _llama),
    "qwen2": Architecture("Qwen2ForCausalLM", "qwen2", _qwen2),
    "qwen3": Architecture("Qwen3ForCausalLM", "qwen3", _qwen3),
    "gemma": Architecture("GemmaForCausalLM", "gemma", _gemma),
    "gemma2": Architecture("Gemma2ForCausalLM", "gemma2", _gemma2),
    "gemma3": Architecture("Gemma3ForCausalLM", "gemma3_text", _gemma3),
}


def model_config(head: GgufHead) -> dict[str, Any]:
    """The configuration.  ModelError for an unknown architecture or impossible metadata."""
    row = ARCHITECTURES.get(head.architecture)
    if row is None:
        raise ModelError(
            f"{head.path}: GGUF files of the architecture {head.architecture!r} are not known",
            expected=f"one of {', '.join(ARCHITECTURES)}",
            found=head.architecture,
            mend="use the model's safetensors files",
        )
    keys = Keys(head)
    if keys.has("expert_count") and keys.head.integer(f"{keys.prefix}.expert_count"):
        raise ModelError(
            f"{head.path}: GGUF files with a mixture of experts are not known",
            found=f"{keys.prefix}.expert_count",
            mend="use the model's safetensors files",
        )
    heads = keys.size("attention.head_count")
    config: dict[str, Any] = {
        "architectures": [row.architecture],
        "model_type": row.model_type,
        "hidden_size": keys.size("embedding_length"),
        "intermediate_size": keys.size("feed_forward_length"),
        "num_hidden_layers": keys.size("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": keys.size("attention.head_count_kv", heads),
        "head_dim": keys.head_dim,
        "max_position_embeddings": keys.size("context_length"),
        "rms_norm_eps": keys.number("attention.layer_norm_rms_epsilon"),
        "rope_parameters": _rope(keys),
        "vocab_size": _vocab_size(keys),
        "tie_word_embeddings": not _has_tensor(keys, "output.weight"),
        "dtype": _dtype(keys),
        **_token_keys(head),
    }
    return config | row.extra(keys)


def generation_config(head: GgufHead) -> dict[str, Any]:
    """What the file says of generating: ends, and the sampling that its author recommends."""
    found = {
        ours: value
        for theirs, ours in _SAMPLING.items()
        if (value := head.number(f"general.sampling.{theirs}")) is not None
    }
    sampling: dict[str, Any] = {
        key: int(value) if key == "top_k" else float(f"{value:.7g}") for key, value in found.items()
    }
    if sampling:
        sampling["do_sample"] = sampling.get("temperature", 1.0) > 0
    return _token_keys(head) | sampling


def _token_keys(head: GgufHead) -> dict[str, Any]:
    ids = token_ids(head, len(head.strings("tokenizer.ggml.tokens") or ()))
    ends = end_ids(head)
    named = {"bos_token_id": ids.get("bos"), "pad_token_id": ids.get("padding")}
    keys: dict[str, Any] = {key: value for key, value in named.items() if value is not None}
    if ends:
        keys["eos_token_id"] = ends[0] if len(ends) == 1 else list(ends)
    return keys


def _vocab_size(keys: Keys) -> int:
    """Rows of the embedding; a vocabulary that does not fit it contradicts the file."""
    table = keys.head.tensors.get("token_embd.weight")
    tokens = len(keys.head.strings("tokenizer.ggml.tokens") or ())
    if table is None:
        return tokens or keys.size("vocab_size")
    rows = table.shape[0] if table.shape else 0
    if tokens > rows:
        raise ModelError(
            f"{keys.head.path} is damaged: the vocabulary does not fit the embedding",
            expected=f"at most {rows} tokens",
            found=tokens,
            mend=MEND,
        )
    return rows


def _dtype(keys: Keys) -> str:
    """The type that the tensors have once they are read: quantized ones become float32."""
    table = keys.head.tensors.get("token_embd.weight")
    return _DTYPES.get(table.type_id, "float32") if table else "float32"


def _rope(keys: Keys, default_base: float = 10_000.0) -> dict[str, Any]:
    """Rotary embedding.  Llama 3's scaling is not here: files hold it as the tensor
    rope_freqs.weight, divisors of the frequencies."""
    rope: dict[str, Any] = {
        "rope_type": "default",
        "rope_theta": keys.number("rope.freq_base", default_base),
    }
    rotated = keys.optional_size("rope.dimension_count")
    if rotated is not None and rotated != keys.head_dim:
        rope["partial_rotary_factor"] = rotated / keys.head_dim
    kind = keys.text("rope.scaling.type") or ("linear" if keys.has("rope.scale_linear") else "none")
    if kind == "none":
        return rope
    if kind not in ("linear", "yarn"):
        raise keys.wrong("rope.scaling.type", "none, linear or yarn", kind)
    linear = keys.number("rope.scale_linear", 1.0)
    rope |= {"rope_type": kind, "factor": keys.number("rope.scaling.factor", linear)}
    if kind == "yarn":
        rope["original_max_position_embeddings"] = keys.size("rope.scaling.original_context_length")
        for theirs, ours in (
            ("attn_factor", "attention_factor"),
            ("yarn_beta_fast", "beta_fast"),
            ("yarn_beta_slow", "beta_slow"),
        ):
            if keys.has(f"rope.scaling.{theirs}"):
                rope[ours] = keys.number(f"rope.scaling.{theirs}")
    return rope
