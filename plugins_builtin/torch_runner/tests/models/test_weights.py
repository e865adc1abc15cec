"""Weight files into the decoder: every tensor once, in its place, or a clear error."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from framework.contracts.weight_loader import WeightQuery
from framework.errors import ModelError
from framework_torch.models.definition import DecoderDefinition
from framework_torch.weights.safetensors_loader import SafetensorsLoader


def build(files, dtype: str = "float32", weights: object = "files"):
    given = SafetensorsLoader().open(files) if weights == "files" else weights
    return DecoderDefinition().build(files, given, dtype, 0)


def rewrite(tiny_model, folder: Path, change, name: str = "model.safetensors") -> Path:
    """A copy of the model with `change` applied to its tensors."""
    tensors = load_file(tiny_model.root / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / name)
    (folder / "config.json").write_text((tiny_model.root / "config.json").read_text())
    return folder


def test_a_missing_tensor_is_named_with_its_folder(tiny, helpers, tmp_path) -> None:
    name = "model.layers.1.self_attn.k_proj.weight"
    rewrite(tiny("llama"), tmp_path, lambda t: t.pop(name))
    with pytest.raises(ModelError, match="missing") as caught:
        build(helpers.files_of(tmp_path))
    assert name in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_an_unexpected_tensor_is_named(tiny, helpers, tmp_path) -> None:
    rewrite(tiny("llama"), tmp_path, lambda t: t.update({"model.extra": torch.ones(1)}))
    with pytest.raises(ModelError, match=r"no place for\n.*\n.*model\.extra"):
        build(helpers.files_of(tmp_path))


def test_stored_rotary_frequencies_are_passed_over(tiny, helpers, tmp_path) -> None:
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    rewrite(tiny("llama"), tmp_path, lambda t: t.update({name: torch.ones(8)}))
    assert build(helpers.files_of(tmp_path)).vocab_size == 96


@pytest.mark.parametrize(
    "name", ["model.norm.weight", "model.layers.0.mlp.up_proj.weight", "lm_head.weight"]
)
def test_a_wrong_shape_names_tensor_file_expected_and_found(tiny, helpers, tmp_path, name) -> None:
    right: list[int] = []

    def change(tensors) -> None:
        right.extend(tensors[name].shape)
        tensors[name] = tensors[name][:-1].clone()

    rewrite(tiny("llama"), tmp_path, change)
    with pytest.raises(ModelError) as caught:
        build(helpers.files_of(tmp_path))
    text = str(caught.value)
    assert name in text
    assert str(tmp_path / "model.safetensors") in text
    assert caught.value.expected == right
    assert caught.value.found == [right[0] - 1, *right[1:]]


@pytest.mark.parametrize("kept", [0, 5, 100, -1])
def test_a_truncated_file_is_a_clear_error(tiny, helpers, tmp_path, kept) -> None:
    rewrite(tiny("llama"), tmp_path, lambda t: None)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ModelError, match="cannot be opened as safetensors") as caught:
        build(helpers.files_of(tmp_path))
    assert str(path) in str(caught.value)


def test_tensors_of_integers_are_refused(tiny, helpers, tmp_path) -> None:
    def change(tensors) -> None:
        tensors["lm_head.weight"] = tensors["lm_head.weight"].to(torch.int8)

    rewrite(tiny("llama"), tmp_path, change)
    with pytest.raises(ModelError, match="unexpected type"):
        build(helpers.files_of(tmp_path))


def shard(tiny_model, folder: Path) -> dict[str, str]:
    tensors = load_file(tiny_model.root / "model.safetensors")
    names = sorted(tensors)
    table = {}
    for number, part in enumerate((names[::2], names[1::2])):
        file = f"model-0000{number}.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file)
        table.update(dict.fromkeys(part, file))
    (folder / "config.json").write_text((tiny_model.root / "config.json").read_text())
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))
    return table


def test_shards_give_the_model_of_one_file_and_strangers_beside_them_do_not_count(
    tiny, helpers, tmp_path
) -> None:
    model = tiny("llama")
    shard(model, tmp_path)
    rewrite(model, tmp_path, lambda t: None, name="consolidated.safetensors")
    whole, parts = build(model.files), build(helpers.files_of(tmp_path))
    for (name, a), (other, b) in zip(
        whole.named_parameters(), parts.named_parameters(), strict=True
    ):
        assert name == other
        assert torch.equal(a, b)


def test_a_missing_shard_and_a_path_out_of_the_folder_are_named(tiny, helpers, tmp_path) -> None:
    table = shard(tiny("llama"), tmp_path)
    files = helpers.files_of(tmp_path)
    (tmp_path / "model-00001.safetensors").unlink()
    with pytest.raises(ModelError, match="shard that is not there"):
        build(files)
    table["lm_head.weight"] = "../model-00000.safetensors"
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))
    with pytest.raises(ModelError, match="outside of its folder"):
        build(files)


def test_the_same_tensor_in_two_files_is_an_error(tiny, helpers, tmp_path) -> None:
    rewrite(tiny("llama"), tmp_path, lambda t: None)
    save_file({"lm_head.weight": torch.ones(2)}, tmp_path / "more.safetensors")
    with pytest.raises(ModelError, match="in two files"):
        build(helpers.files_of(tmp_path))


def test_tied_embeddings_are_kept_once(tiny, helpers, tmp_path) -> None:
    model = tiny("qwen2")
    decoder = build(model.files)
    assert decoder.head.weight is decoder.embedding.weight
    assert sum(p.numel() for p in set(decoder.parameters())) == 8 + sum(
        p.numel() for p in model.reference.parameters()
    )

    def add(tensors) -> None:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + 1

    rewrite(model, tmp_path, add)
    with pytest.raises(ModelError, match="tied"):
        build(helpers.files_of(tmp_path))


def test_dummy_weights_are_small_finite_and_follow_the_seed(tiny) -> None:
    files = tiny("qwen3").files
    first, again = (DecoderDefinition().build(files, None, "float32", 5) for _ in range(2))
    other = DecoderDefinition().build(files, None, "bfloat16", 6)
    for a, b in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)
    weights = first.layers[1].qkv.weight
    assert 0.01 < float(weights.std()) < 0.03
    assert not torch.equal(weights, first.layers[0].qkv.weight)
    assert other.layers[1].qkv.weight.dtype == torch.bfloat16
    assert not torch.equal(other.layers[1].qkv.weight.float(), weights.bfloat16().float())


class Gguf:
    """Weights by GGUF names, changed as the conversion changes them."""

    naming = "gguf"

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        self.tensors = tensors

    def names(self):
        return iter(self.tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.tensors[name].shape)

    def source(self, name: str) -> str:
        return "model.gguf"

    def get(self, name: str) -> torch.Tensor:
        return self.tensors[name]


def interleave(tensor: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of each head from two halves to pairs, index by index."""
    size = len(tensor) // heads
    order = [
        head * size + half * (size // 2) + pair
        for head in range(heads)
        for pair in range(size // 2)
        for half in range(2)
    ]
    return tensor[order]


def as_gguf(root: Path, rotary: bool, gemma: bool = False) -> dict[str, torch.Tensor]:
    parts = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "self_attn.q_norm": "attn_q_norm",
        "self_attn.k_norm": "attn_k_norm",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    if gemma:
        parts |= {
            "post_attention_layernorm": "post_attention_norm",
            "pre_feedforward_layernorm": "ffn_norm",
            "post_feedforward_layernorm": "post_ffw_norm",
        }
    top = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    renamed = {}
    for name, tensor in load_file(root / "model.safetensors").items():
        stem, _, kind = name.rpartition(".")
        if gemma and stem.endswith("norm"):
            tensor = tensor + 1
        if stem in top:
            renamed[f"{top[stem]}.{kind}"] = tensor
            continue
        _, _, index, rest = stem.split(".", 3)
        if rotary and rest in ("self_attn.q_proj", "self_attn.k_proj"):
            tensor = interleave(tensor, 4 if "q_proj" in rest else 2)
        renamed[f"blk.{index}.{parts[rest]}.{kind}"] = tensor
    return renamed


@pytest.mark.parametrize(
    ("name", "rotary"), [("llama", True), ("mistral", True), ("qwen2", False), ("qwen3", False)]
)
def test_gguf_names_and_rotary_order_give_the_same_model(tiny, name, rotary) -> None:
    files = tiny(name).files
    right = build(files)
    got = build(files, weights=Gguf(as_gguf(files.root, rotary)))
    for (key, a), (_, b) in zip(right.named_parameters(), got.named_parameters(), strict=True):
        assert torch.equal(a, b), key


@pytest.mark.parametrize("name", ["gemma2", "gemma3"])
def test_gguf_norms_of_gemma_lose_the_one_and_every_other_tensor_stays(tiny, name) -> None:
    files = tiny(name).files
    right = build(files)
    got = build(files, weights=Gguf(as_gguf(files.root, False, gemma=True)))
    for (key, a), (_, b) in zip(right.named_parameters(), got.named_parameters(), strict=True):
        if key.endswith("norm.weight"):
            torch.testing.assert_close(a, b, atol=1e-6, rtol=0)
        else:
            assert torch.equal(a, b), key


def test_gguf_rotary_divisors_divide_the_frequencies(tiny) -> None:
    files = tiny("llama").files
    tensors = as_gguf(files.root, True)
    tensors["rope_freqs.weight"] = torch.linspace(1, 8, 8)
    plain, divided = build(files), build(files, weights=Gguf(tensors))
    position = torch.tensor([3])
    angle, scaled = (
        model._angles(position, torch.float64)[0][1].asin() for model in (plain, divided)
    )
    np.testing.assert_allclose((angle / scaled).flatten()[1:], np.linspace(1, 8, 8)[1:], rtol=1e-4)


@pytest.mark.parametrize(
    ("files", "load_format", "fields"),
    [
        (("a.safetensors",), "auto", []),
        ((), "dummy", []),
        ((), "auto", ["files"]),
        (("a.gguf",), "auto", ["files"]),
        (("a.safetensors",), "gguf", ["load_format"]),
    ],
)
def test_the_loader_answers_for_its_own_format(tmp_path, files, load_format, fields) -> None:
    (tmp_path / "config.json").write_text("{}")
    query = WeightQuery(
        root=tmp_path, files=tuple(tmp_path / f for f in files), load_format=load_format
    )
    answer = SafetensorsLoader().answer(query)
    assert [reason.field for reason in getattr(answer, "reasons", ())] == fields


@pytest.mark.parametrize("text", ["", "{", "[]", '{"architectures": []}', '{"a": "\ud800'])
def test_a_damaged_config_is_a_clear_error(tmp_path, text) -> None:
    (tmp_path / "config.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ModelError, match=r"config\.json"):
        SafetensorsLoader().config(tmp_path, ())


def test_config_is_read_without_torch(tiny) -> None:
    import subprocess
    import sys

    root = tiny("llama").root
    code = (
        "import sys, pathlib;"
        "from framework_torch.weights.safetensors_loader import SafetensorsLoader as L;"
        "import framework_torch.runner, framework_torch.models.definition;"
        f"c, g = L().config(pathlib.Path({str(root)!r}), ());"
        "print(c['architectures'][0], 'torch' in sys.modules, 'transformers' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["LlamaForCausalLM", "False", "False"]
