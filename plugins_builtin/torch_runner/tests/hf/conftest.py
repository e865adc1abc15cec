"""Tiny random models of architectures that only Transformers' modelling code serves, and a
forward context with an attention of its own."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from framework.contracts.model_source import ModelFiles
from framework_torch.hf import TransformersModel
from framework_torch.weights.safetensors_loader import SafetensorsWeights

VOCAB = 96
# What each has that others have not.
OWN: dict[str, dict[str, Any]] = {
    "Phi3": {
        "sliding_window": 6,
        "partial_rotary_factor": 0.5,
        "original_max_position_embeddings": 128,
    },
    "Olmo2": {},
    "GPTNeoX": {"partial_rotary_factor": 0.25},
    "GPT2": {"scale_attn_by_inverse_layer_idx": True},  # learned positions, a scale per layer
    "OPT": {"ffn_dim": 96, "word_embed_proj_dim": 32},  # positions with an offset, projections
    "Cohere": {"logit_scale": 0.25},
    "Granite": {"logits_scaling": 4.0, "attention_multiplier": 0.3, "embedding_multiplier": 3.0},
    "Gemma2": {
        "head_dim": 16,
        "sliding_window": 5,
        "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 3.0,
        "query_pre_attn_scalar": 32,
    },
    # Sinks, and experts that files hold in other cuts than modules.
    "GptOss": {"head_dim": 16, "sliding_window": 6, "num_local_experts": 4},
    "Mixtral": {"num_local_experts": 4, "sliding_window": None},
    "DeepseekV3": {  # keys and values of different sizes
        "num_key_value_heads": 4,
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 10,
        "v_head_dim": 12,
        "n_routed_experts": 4,
        "n_group": 1,
        "topk_group": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "first_k_dense_replace": 1,
    },
}


@dataclass
class History:
    """A forward context of dense float64 attention, one row at a time: the arithmetic as in a
    textbook, over all that each row has written so far."""

    layers: Any
    kept: dict[tuple[str, int], list[Any]] = field(default_factory=dict)
    rows: list[tuple[int, int]] = field(default_factory=list)  # (row, new tokens) of the step

    def attend(self, layer: str, q: Any, k: Any, v: Any) -> Any:
        parts, start = [], 0
        for row, new in self.rows:
            own = self.kept.setdefault((layer, row), [])
            span = slice(start, start + new)
            own.append((k[span].double(), v[span].double()))
            keys, values = (torch.cat(part) for part in zip(*own, strict=True))
            parts.append(self.one(layer, q[span].double(), keys, values))
            start += new
        assert start == len(q)
        return torch.cat(parts).to(q.dtype)

    def one(self, layer: str, q: Any, k: Any, v: Any) -> Any:
        need = self.layers[layer]
        assert (q.shape[1], k.shape[1]) == (need.num_heads, need.spec.num_kv_heads)
        assert (k.shape[2], v.shape[2]) == (need.spec.head_size, need.spec.head_size_v)
        group, params = q.shape[1] // k.shape[1], need.params
        k, v = (part.repeat_interleave(group, 1) for part in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) * params.scale
        if params.softcap is not None:
            scores = params.softcap * torch.tanh(scores / params.softcap)
        at = torch.arange(len(k))
        distance = at[len(k) - len(q) :, None] - at
        unseen = (distance < 0) | (distance >= (params.window or len(k)))
        scores = scores.masked_fill(unseen, -torch.inf).exp()
        total = scores.sum(-1, keepdim=True)
        if params.sinks is not None:
            total = total + params.sinks.double().exp()[:, None, None]
        return torch.einsum("hqk,khd->qhd", scores / total, v)


def files_of(root: Path) -> ModelFiles:
    return ModelFiles(
        name="tiny",
        root=root,
        weights=tuple(sorted(root.glob("*.safetensors"))),
        format="safetensors",
        config=json.loads((root / "config.json").read_text()),
    )


def build(root: Path, dtype: str = "float32", **files: Any) -> Any:
    found = files_of(root)
    return TransformersModel().build(found, SafetensorsWeights(found.weights), dtype, 0)


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory, tiny_other: Any) -> Any:
    """saved(name) -> (folder, the model in Transformers), made once."""
    known: dict[str, Any] = {}

    def get(name: str) -> Any:
        if name not in known:
            root = tmp_path_factory.mktemp(name)
            known[name] = root, tiny_other(root, name, **OWN[name])
        return known[name]

    return get


def sequences() -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(5)
    return [torch.randint(3, VOCAB, (length,), generator=random) for length in (1, 9, 23)]


@pytest.fixture
def hf(tiny_other: Any) -> Any:
    """Functions that the tests share."""

    def make(root: Path, name: str, **changes: Any) -> Any:
        """Saves a tiny random model and returns it."""
        return tiny_other(root, name, **{**OWN[name], **changes})

    return SimpleNamespace(
        History=History, make=make, files_of=files_of, build=build, sequences=sequences
    )
