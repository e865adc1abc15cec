"""Encoders by Transformers' modelling code, against its own forward pass with its own attention."""

import json

import pytest
import torch
import transformers

from framework.contracts.base import Rejected, Supported
from framework.contracts.kv_cache_spec import EncoderOnlySpec
from framework.contracts.model import ArchitectureQuery
from framework.errors import UnsupportedError
from framework_torch.hf import TransformersEncoder
from framework_torch.weights.safetensors_loader import SafetensorsWeights

COMMON = {
    "vocab_size": 96,
    "hidden_size": 64,
    "embedding_size": 32,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 66,
    "pad_token_id": 1,
    "is_decoder": False,
}
# Positions that begin at 0 and behind the padding; an embedding narrower than the states.
SERVED = {"Bert": 66, "Roberta": 64, "XLMRoberta": 64, "Electra": 66}


class Inside:
    """A forward context in which each token sees all of its row, in float64."""

    def __init__(self, layers, lengths):
        self.layers, self.lengths = layers, lengths

    def attend(self, layer, q, k, v):
        need, parts = self.layers[layer], []
        assert isinstance(need.spec, EncoderOnlySpec)
        for queries, keys, values in zip(
            *(part.double().split(self.lengths) for part in (q, k, v)), strict=True
        ):
            scores = torch.einsum("qhd,khd->hqk", queries, keys) * need.params.scale
            parts.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), values))
        return torch.cat(parts).to(q.dtype)


@pytest.fixture
def made(tmp_path):
    """made(name, **changes) -> (folder, the model in Transformers)."""

    def make(name, **changes):
        torch.manual_seed(sum(name.encode()))
        config = getattr(transformers, f"{name}Config")(**{**COMMON, **changes})
        model = transformers.AutoModel.from_config(config, attn_implementation="eager")
        model = model.float().eval()
        for parameter in model.parameters():
            parameter.data += 0.05 * torch.randn_like(parameter)
        model.save_pretrained(tmp_path)
        return tmp_path, model

    return make


def build(hf, root):
    files = hf.files_of(root)
    return TransformersEncoder().build(files, SafetensorsWeights(files.weights), "float32", 0)


@pytest.mark.parametrize("name", SERVED)
@torch.inference_mode()
def test_hidden_states_are_transformers_for_mixed_lengths(name, made, hf):
    root, reference = made(name)
    model = build(hf, root)
    assert model.max_model_len == SERVED[name]
    assert not model.generates
    every = [ids % 90 + 3 for ids in hf.sequences()]
    layers = model.attention_layers("float32")
    hidden = model(
        model.embed(torch.cat(every)),
        torch.cat([torch.arange(len(ids)) for ids in every]),
        Inside(layers, [len(ids) for ids in every]),
    )
    assert hidden.shape[1] == model.hidden_size == 64
    for ids, found in zip(every, hidden.split([len(ids) for ids in every]), strict=True):
        right = reference(input_ids=ids[None]).last_hidden_state[0]
        torch.testing.assert_close(found, right, atol=1e-5, rtol=0)
    with pytest.raises(UnsupportedError, match="no logits"):
        model.logits(hidden)


@pytest.mark.parametrize(
    ("architecture", "config", "field"),
    [
        ("LlamaModel", {"model_type": "llama"}, "architecture"),
        ("BertForMaskedLM", {"model_type": "bert"}, "architecture"),
        ("BertModel", {"model_type": "bert", "is_decoder": True}, "config.is_decoder"),
        ("BertModel", {"model_type": "bert", "num_hidden_layers": 10**6}, "config.num_hidden"),
        ("BertModel", {"model_type": "bert", "num_attention_heads": "x"}, "config"),
        ("BertModel", {"model_type": ["bert"]}, "architecture"),
        ("", {}, "architecture"),
    ],
)
def test_what_is_no_encoder_is_rejected_with_the_field(architecture, config, field):
    query = ArchitectureQuery(architecture=architecture, config=config)
    answer = TransformersEncoder().answer(query)
    assert isinstance(answer, Rejected)
    assert any(reason.field.startswith(field) for reason in answer.reasons), answer.reasons


def test_the_bare_model_of_an_encoder_is_supported():
    config = {"model_type": "bert", "hidden_size": 64, "num_attention_heads": 4}
    query = ArchitectureQuery(architecture="BertModel", config=config)
    assert isinstance(TransformersEncoder().answer(query), Supported)


def test_an_encoder_with_windows_is_refused_and_not_computed_wrongly(made, hf):
    windows = {"global_attn_every_n_layers": 2, "local_attention": 8, "pad_token_id": 0}
    root, _ = made("ModernBert", cls_token_id=1, sep_token_id=2, eos_token_id=3, **windows)
    with pytest.raises(UnsupportedError, match=r"hides|window"):
        build(hf, root)


def test_old_and_spare_tensors_are_passed_over_and_a_missing_one_is_named(made, hf):
    from safetensors.torch import load_file, save_file

    root, _ = made("Bert")
    file = root / "model.safetensors"
    tensors = {k: v for k, v in load_file(file).items() if not k.startswith("pooler.")}
    tensors["embeddings.position_ids"] = torch.arange(66)[None]
    save_file(tensors, file, metadata={"format": "pt"})
    build(hf, root)
    del tensors["encoder.layer.0.output.dense.bias"]
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(Exception, match="missing") as caught:
        build(hf, root)
    assert "output.dense.bias" in str(caught.value)
    assert json.loads((root / "config.json").read_text())["architectures"] == ["BertModel"]
