"""Configurations in Transformers' words say what GGUF files say."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from framework.errors import ModelError
from framework_torch.gguf.loader import GgufLoader

Write = Callable[..., Path]
Facts = Callable[..., dict[str, Any]]

EMBEDDING = {"token_embd.weight": np.zeros((10, 64), np.float32)}


def config(path: Path) -> dict[str, Any]:
    return dict(GgufLoader().config(path.parent, (path,))[0])


def test_the_configuration_of_smollm(smollm_path: Path) -> None:
    configuration, generation = GgufLoader().config(smollm_path.parent, (smollm_path,))
    assert configuration == {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-05,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
        "vocab_size": 49152,
        "tie_word_embeddings": True,
        "dtype": "float32",
        "bos_token_id": 1,
        "pad_token_id": 2,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
    }
    assert generation == {"bos_token_id": 1, "pad_token_id": 2, "eos_token_id": 2}


def test_the_configuration_is_read_without_torch(smollm_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from framework_torch.gguf.loader import GgufLoader\n"
        "path = Path(sys.argv[1]); GgufLoader().config(path.parent, (path,))\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(smollm_path)], check=True, timeout=60)


@pytest.mark.parametrize(
    ("architecture", "name", "model_type"),
    [
        ("llama", "LlamaForCausalLM", "llama"),
        ("qwen2", "Qwen2ForCausalLM", "qwen2"),
        ("qwen3", "Qwen3ForCausalLM", "qwen3"),
        ("gemma", "GemmaForCausalLM", "gemma"),
        ("gemma2", "Gemma2ForCausalLM", "gemma2"),
        ("gemma3", "Gemma3ForCausalLM", "gemma3_text"),
    ],
)
def test_architectures_are_named_as_transformers_does(
    write: Write, architecture: str, name: str, model_type: str, facts: Facts
) -> None:
    from transformers import CONFIG_MAPPING

    window = {"attention.sliding_window": 16} if architecture == "gemma3" else {}
    found = config(write(facts(architecture, **window), EMBEDDING))
    assert (found["architectures"], found["model_type"]) == ([name], model_type)
    assert (found["hidden_size"], found["head_dim"], found["vocab_size"]) == (64, 16, 10)
    assert CONFIG_MAPPING[model_type](**found).num_key_value_heads == 2


def test_what_files_say_by_tensors_and_optional_keys(write: Write, facts: Facts) -> None:
    bias = {"blk.0.attn_q.bias": np.zeros(64, np.float32)}
    head = {"output.weight": np.zeros((10, 64), np.float32)}
    found = config(write(facts(**{"attention.key_length": 32}), EMBEDDING | bias | head))
    assert (found["attention_bias"], found["mlp_bias"]) == (True, False)
    assert found["tie_word_embeddings"] is False
    assert found["head_dim"] == 32
    assert found["rms_norm_eps"] == 1e-5

    mistral = config(write(facts(**{"attention.sliding_window": 48}), EMBEDDING))
    assert mistral["architectures"] == ["MistralForCausalLM"]
    assert mistral["sliding_window"] == 48

    half = {"token_embd.weight": np.zeros((10, 64), np.float16)}
    scaled = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}
    changed = config(
        write(facts(**{"attention.head_count_kv": None, "rope.freq_base": None} | scaled), half)
    )
    assert changed["num_key_value_heads"] == 4
    assert changed["dtype"] == "float16"
    assert changed["rope_parameters"] == {
        "rope_type": "linear",
        "rope_theta": 10000.0,
        "factor": 4.0,
    }


def test_yarn_is_read_whole(write: Write, facts: Facts) -> None:
    yarn = {"type": "yarn", "factor": 4.0, "original_context_length": 32}
    found = config(
        write(facts("qwen2", **{f"rope.scaling.{key}": v for key, v in yarn.items()}), EMBEDDING)
    )
    assert found["rope_parameters"] == {
        "rope_type": "yarn",
        "rope_theta": 50000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 32,
    }


def test_gemma_layers_windows_and_caps(write: Write, facts: Facts) -> None:
    two = facts("gemma2", **{"attn_logit_softcapping": 40.0, "attention.key_length": 32})
    second = config(write(two, EMBEDDING))
    assert second["layer_types"] == ["sliding_attention", "full_attention"]
    assert (second["attn_logit_softcapping"], second["final_logit_softcapping"]) == (40.0, 30.0)
    assert second["query_pre_attn_scalar"] == 32
    three = facts("gemma3", **{"attention.sliding_window": 512, "block_count": 7})
    third = config(write(three, EMBEDDING))
    assert third["layer_types"] == [
        *(["sliding_attention"] * 5),
        "full_attention",
        "sliding_attention",
    ]
    assert third["rope_parameters"]["sliding_attention"]["rope_theta"] == 10000.0
    assert third["rope_parameters"]["full_attention"]["rope_theta"] == 50000.0


def test_recommended_sampling_and_every_end_are_in_the_generation_config(
    write: Write, facts: Facts
) -> None:
    vocabulary = {
        "tokenizer.ggml.tokens": ["a", "<eos>", "<end_of_turn>"],
        "tokenizer.ggml.token_type": [1, 3, 3],
        "tokenizer.ggml.eos_token_id": 1,
        "general.sampling.temp": 0.6,
        "general.sampling.top_k": 20,
    }
    path = write(facts() | vocabulary, EMBEDDING)
    _, generation = GgufLoader().config(path.parent, (path,))
    assert generation == {
        "eos_token_id": [1, 2],
        "temperature": 0.6,
        "top_k": 20,
        "do_sample": True,
    }


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"block_count": None}, "block_count is missing"),
        ({"block_count": 0}, "block_count is impossible"),
        ({"block_count": "two"}, "wrong type"),
        ({"attention.head_count": 7}, "head_count is impossible"),
        ({"attention.head_count": [4, 4]}, "wrong type"),
        ({"attention.layer_norm_rms_epsilon": float("nan")}, "epsilon is impossible"),
        ({"attention.layer_norm_rms_epsilon": -1.0}, "epsilon is impossible"),
        ({"rope.freq_base": float("inf")}, "freq_base is impossible"),
        ({"rope.scaling.type": "magic"}, "scaling.type is impossible"),
        ({"expert_count": 8}, "mixture of experts"),
    ],
)
def test_impossible_metadata_is_an_error_that_names_the_key(
    write: Write, changes: dict[str, Any], words: str, facts: Facts
) -> None:
    with pytest.raises(ModelError, match=words) as caught:
        config(write(facts(**changes), EMBEDDING))
    assert "t.gguf" in str(caught.value)


def test_an_unknown_architecture_is_named_with_the_known_ones(write: Write, facts: Facts) -> None:
    with pytest.raises(ModelError, match="'alien'") as caught:
        config(write(facts("alien"), EMBEDDING))
    assert "llama, qwen2, qwen3" in str(caught.value)


def test_a_vocabulary_larger_than_the_embedding_is_refused(write: Write, facts: Facts) -> None:
    tokens = {"tokenizer.ggml.tokens": [str(i) for i in range(11)]}
    with pytest.raises(ModelError, match="does not fit"):
        config(write(facts() | tokens, EMBEDDING))
