"""Tensors of GGUF files equal the reference's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from framework.contracts.base import Rejected, Supported
from framework.contracts.model_source import ModelFiles
from framework.contracts.weight_loader import WeightQuery
from framework.errors import ModelError
from framework_text.gguf_metadata import read_head
from framework_torch.gguf.loader import GgufLoader
from framework_torch.gguf.transforms import undo_gemma_norm, undo_rope_permute
from framework_torch.gguf.weights import GgufWeights

Write = Callable[..., Path]
Facts = Callable[..., dict[str, Any]]

NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
}


EMBEDDING = {"token_embd.weight": np.zeros((10, 64), np.float32)}


@pytest.fixture
def tiny_path(write: Write, facts: Facts) -> Path:
    """Two layers of Llama, its linear weights quantized."""
    random = np.random.default_rng(1)

    def q8(*shape: int) -> tuple[np.ndarray, GGMLQuantizationType]:
        kind = GGMLQuantizationType.Q8_0
        return quantize(random.standard_normal(shape).astype(np.float32), kind), kind

    def norm() -> np.ndarray:
        return random.standard_normal(64).astype(np.float32)

    tensors: dict[str, Any] = {"token_embd.weight": q8(10, 64), "output_norm.weight": norm()}
    for layer in ("blk.0", "blk.1"):
        for part, shape in {
            "attn_q": (64, 64),
            "attn_k": (32, 64),
            "attn_v": (32, 64),
            "attn_output": (64, 64),
            "ffn_gate": (96, 64),
            "ffn_up": (96, 64),
            "ffn_down": (64, 96),
        }.items():
            tensors[f"{layer}.{part}.weight"] = q8(*shape)
        tensors |= {f"{layer}.attn_norm.weight": norm(), f"{layer}.ffn_norm.weight": norm()}
    named = {"general.name": "tiny", "tokenizer.ggml.bos_token_id": 1}
    tokens = {"tokenizer.ggml.tokens": [str(i) for i in range(10)]}
    return write(facts() | {"llama.rope.dimension_count": 16} | named | tokens, tensors)


@pytest.mark.parametrize(
    "which", ["tiny_path", pytest.param("smollm_path", marks=pytest.mark.long)]
)
def test_all_tensors_equal_those_that_transformers_loads(
    which: str, request: pytest.FixtureRequest, model: Callable[..., ModelFiles]
) -> None:
    from transformers import AutoModelForCausalLM, LlamaConfig
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    path: Path = request.getfixturevalue(which)
    configuration, _ = GgufLoader().config(path.parent, (path,))
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(LlamaConfig(**configuration))
    theirs = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=empty)
    weights = GgufLoader().open(model(path))
    assert weights.naming == "gguf"
    compared = set()
    for name in weights.names():
        tensor = weights.get(name)
        assert tuple(tensor.shape) == weights.shape(name)
        if ".attn_q." in name:
            tensor = undo_rope_permute(tensor, configuration["num_attention_heads"])
        elif ".attn_k." in name:
            tensor = undo_rope_permute(tensor, configuration["num_key_value_heads"])
        if name.startswith("blk."):
            _, layer, part, kind = name.split(".")
            hf_name = f"model.layers.{layer}.{NAMES[part]}.{kind}"
        else:
            hf_name = NAMES[name]
        assert torch.equal(tensor, theirs["tensors"][hf_name]), name
        compared.add(hf_name)
    assert compared == {name for name in empty.state_dict() if name != "lm_head.weight"}
    for key in ("num_hidden_layers", "hidden_size", "head_dim", "vocab_size", "bos_token_id"):
        assert configuration[key] == theirs["config"][key]


def test_plain_types_are_views_and_quantized_ones_are_dequantized(
    write: Write, facts: Facts, model: Callable[..., ModelFiles]
) -> None:
    values = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    bf16 = quantize(values, GGMLQuantizationType.BF16)
    q8 = quantize(values, GGMLQuantizationType.Q8_0)
    path = write(
        facts(),
        {
            "f32": values,
            "f16": values.astype(np.float16),
            "bf16": (bf16, GGMLQuantizationType.BF16),
            "q8": (q8, GGMLQuantizationType.Q8_0),
        },
    )
    before = path.read_bytes()
    weights = GgufLoader().open(model(path))
    tensors = {name: weights.get(name) for name in weights.names()}
    expected = torch.from_numpy(values)
    assert torch.equal(tensors["f32"], expected)
    assert torch.equal(tensors["f16"], expected.half())
    assert torch.equal(tensors["bf16"], expected.bfloat16())
    reference = dequantize(q8, GGMLQuantizationType.Q8_0)
    assert torch.equal(tensors["q8"], torch.from_numpy(reference))
    assert all(tuple(t.shape) == (4, 64) and t.is_contiguous() for t in tensors.values())
    tensors["f32"].zero_()
    assert path.read_bytes() == before
    with pytest.raises(ModelError, match="no such tensor"):
        weights.get("absent")


def test_a_file_that_became_shorter_since_its_head_was_read_is_an_error(
    write: Write, facts: Facts
) -> None:
    path = write(facts(), {"a.weight": np.ones((4, 8), np.float32)})
    head = read_head(path)
    path.write_bytes(path.read_bytes()[:-100])
    weights = GgufWeights([head])
    with pytest.raises(ModelError, match="the file has become shorter"):
        weights.get("a.weight")


def test_permuted_rows_go_back_to_halves() -> None:
    # One head of six rows, a0 b0 a1 b1 a2 b2 -> a0 a1 a2 b0 b1 b2; two heads keep apart.
    head = torch.tensor([0.0, 10, 1, 11, 2, 12])
    expected = torch.tensor([0.0, 1, 2, 10, 11, 12])
    assert torch.equal(undo_rope_permute(head, 1), expected)
    both = torch.cat([head, head + 100])
    assert torch.equal(undo_rope_permute(both, 2), torch.cat([expected, expected + 100]))
    matrix = both[:, None].repeat(1, 3)
    assert torch.equal(undo_rope_permute(matrix, 2)[:, 1], undo_rope_permute(both, 2))


def test_norms_of_gemma_lose_the_one_that_conversion_added() -> None:
    stored = torch.tensor([1.25, 1.0, 0.5])
    assert undo_gemma_norm(stored).tolist() == [0.25, 0.0, -0.5]


def test_a_truncated_smollm_is_refused_quickly(
    smollm_path: Path, tmp_path: Path, model: Callable[..., ModelFiles]
) -> None:
    cut = tmp_path / "cut.gguf"
    with smollm_path.open("rb") as file:
        cut.write_bytes(file.read(3_000_000))
    for attempt in (
        lambda: GgufLoader().config(tmp_path, (cut,)),
        lambda: GgufLoader().open(model(cut)),
    ):
        with pytest.raises(ModelError, match=r"cut\.gguf is damaged"):
            attempt()


def test_all_parts_of_a_split_model_are_needed_and_joined(
    write: Write, facts: Facts, model: Callable[..., ModelFiles]
) -> None:
    split = {"split.count": 2}
    first = write(facts() | split, EMBEDDING, name="m-00001-of-00002.gguf")
    second = write(
        {"split.count": 2}, {"output.weight": np.ones((10, 64), np.float32)}, name="m-2.gguf"
    )
    with pytest.raises(ModelError, match="others are missing"):
        GgufLoader().config(first.parent, (first,))
    loader = GgufLoader()
    found, _ = loader.config(first.parent, (first, second))
    assert found["tie_word_embeddings"] is False
    weights = loader.open(model(first, second))
    assert set(weights.names()) == {"token_embd.weight", "output.weight"}
    assert weights.get("output.weight").sum() == 640
    with pytest.raises(ModelError, match="in another part too"):
        loader.open(model(first, first))


def test_answers_go_by_content(smollm_path: Path, tmp_path: Path) -> None:
    loader = GgufLoader()
    fake = tmp_path / "fake.gguf"
    fake.write_bytes(b"nonsense")

    def answer(files: tuple[Path, ...], load_format: str = "auto") -> object:
        return loader.answer(WeightQuery(root=tmp_path, files=files, load_format=load_format))

    for load_format in ("auto", "gguf", "dummy"):
        assert isinstance(answer((smollm_path,), load_format), Supported)
    assert isinstance(answer((smollm_path,), "safetensors"), Rejected)
    for files in ((fake,), (), (smollm_path, fake), (tmp_path / "absent.gguf",)):
        assert isinstance(answer(files), Rejected)
