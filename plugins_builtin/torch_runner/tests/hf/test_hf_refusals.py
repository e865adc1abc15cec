"""What Transformers' modelling code cannot serve here is refused with its reason."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from framework.contracts.base import Rejected, Supported
from framework.contracts.model import ArchitectureQuery
from framework.contracts.model_source import ModelFiles
from framework.errors import ModelError, UnsupportedError
from framework_torch.hf import TransformersModel
from framework_torch.weights.safetensors_loader import SafetensorsWeights

SMALL = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}


def ask(architecture: str, trust: bool = False, **config: Any) -> Any:
    return TransformersModel().answer(
        ArchitectureQuery(architecture=architecture, config=config, trust_remote_code=trust)
    )


@pytest.mark.parametrize(
    ("architecture", "config", "code", "words"),
    [
        (
            "BloomForCausalLM",
            {"model_type": "bloom"},
            "attention_interface",
            "its attention itself",
        ),
        ("MptForCausalLM", {"model_type": "mpt"}, "attention_interface", "attention itself"),
        ("MambaForCausalLM", {"model_type": "mamba"}, "state_space", "no recurrent"),
        ("JambaForCausalLM", {"model_type": "jamba"}, "layer_types", "linear_attention"),
        ("Qwen3NextForCausalLM", {"model_type": "qwen3_next"}, "layer_types", "linear_attention"),
        ("Llama4ForCausalLM", {"model_type": "llama4_text"}, "layer_types", "chunked_attention"),
        (
            "T5ForConditionalGeneration",
            {"model_type": "t5", "is_encoder_decoder": True},
            "architecture",
            "encoder-decoder",
        ),
        (
            "BartForCausalLM",
            {"model_type": "bart", "is_encoder_decoder": True},
            "is_encoder_decoder",
            "decoder-only",
        ),
        (
            "LlavaForConditionalGeneration",
            {"model_type": "llava", "text_config": {}, "vision_config": {}},
            "multimodal",
            "vision_config",
        ),
        ("BertForMaskedLM", {"model_type": "bert"}, "architecture", "BertLMHeadModel"),
        ("BertLMHeadModel", {"model_type": "bert"}, "is_decoder", "both ways"),
        (
            "PhiForCausalLM",
            {"model_type": "phi", "quantization_config": {"quant_method": "gptq"}},
            "quantization_config",
            "not quantized",
        ),
        ("PhiForCausalLM", {"model_type": "phi", "hidden_size": "wide"}, "config", "hidden_size"),
        ("Phi3ForCausalLM", {"rms_norm_eps": float("inf")}, "rms_norm_eps", "finite"),
        (
            "Phi3ForCausalLM",
            {"rope_parameters": {"rope_theta": float("nan")}},
            "rope_parameters.rope_theta",
            "finite",
        ),
        ("Olmo3ForCausalLM", {"num_hidden_layers": 10**9}, "num_hidden_layers", "at most"),
        ("Phi4ForCausalLM", {"model_type": "phi4"}, "architecture", "did you mean 'Phi"),
        ("Wug", {}, "architecture", "that Transformers knows"),
        ("Wug", {"model_type": ["strange"]}, "architecture", "that Transformers knows"),
    ],
)
def test_each_kind_that_cannot_be_served_has_its_reason(architecture, config, code, words) -> None:
    answer = ask(architecture, **config)
    assert isinstance(answer, Rejected)
    reason = next(reason for reason in answer.reasons if reason.code == code)
    assert words in str(reason)


@pytest.mark.parametrize(
    ("architecture", "model_type"),
    [("Phi3ForCausalLM", "phi3"), ("GPTNeoXForCausalLM", "gpt_neox"), ("Olmo2ForCausalLM", None)],
)
def test_decoders_are_supported_also_without_a_model_type(architecture, model_type) -> None:
    config = {} if model_type is None else {"model_type": model_type}
    assert isinstance(ask(architecture, **config), Supported)


def test_code_of_the_model_itself_needs_the_operators_word() -> None:
    own = {"auto_map": {"AutoModelForCausalLM": "own.Own"}, "model_type": "own"}
    refused = ask("OwnForCausalLM", **own)
    assert isinstance(refused, Rejected)
    assert "trust_remote_code" in str(refused.reasons[0])
    assert isinstance(ask("OwnForCausalLM", trust=True, **own), Supported)


OWN_CODE = """
from transformers import PreTrainedConfig, Olmo2Config, Olmo2ForCausalLM

class OwnConfig(Olmo2Config):
    model_type = "own"

class OwnForCausalLM(Olmo2ForCausalLM):
    config_class = OwnConfig
"""


@pytest.fixture
def saved(tmp_path: Path) -> ModelFiles:
    """A tiny OLMo 2."""
    torch.manual_seed(0)
    model = transformers.Olmo2ForCausalLM(transformers.Olmo2Config(**SMALL))
    model.save_pretrained(tmp_path)
    return files_of(tmp_path)


def files_of(root: Path, **more: Any) -> ModelFiles:
    return ModelFiles(
        name="tiny",
        root=root,
        weights=tuple(root.glob("*.safetensors")),
        format="safetensors",
        config=json.loads((root / "config.json").read_text()),
        **more,
    )


def test_code_of_the_model_itself_runs_only_when_trusted(saved, monkeypatch) -> None:
    root = saved.root
    monkeypatch.setattr(
        transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(root / "modules")
    )
    (root / "own.py").write_text(OWN_CODE)
    names = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnForCausalLM"}
    config = {
        **saved.config,
        "architectures": ["OwnForCausalLM"],
        "model_type": "own",
        "auto_map": names,
    }
    (root / "config.json").write_text(json.dumps(config))
    weights = SafetensorsWeights(saved.weights)
    with pytest.raises(ModelError, match="trust_remote_code"):
        TransformersModel().build(files_of(root), weights, "float32", 0)
    assert not (root / "modules").exists()
    trusted = files_of(root, trust_remote_code=True)
    model = TransformersModel().build(trusted, weights, "float32", 0)
    assert type(model.causal_lm).__name__ == "OwnForCausalLM"
    assert list(model.attention_layers("float32")) == ["layers.0", "layers.1"]


def altered(monkeypatch: Any, files: ModelFiles, change: Any) -> str:
    """The refusal of a model whose modelling code was changed after loading."""
    from framework_torch.hf import load

    original = load.load

    def changed(*arguments: Any) -> Any:
        module = original(*arguments)
        change(module)
        return module

    monkeypatch.setattr(load, "load", changed)
    with pytest.raises(UnsupportedError) as caught:
        TransformersModel().build(files, SafetensorsWeights(files.weights), "float32", 0)
    assert "tiny" in caught.value.message
    return str(caught.value)


def test_a_model_that_mixes_tokens_outside_of_attention_is_refused(saved, monkeypatch) -> None:
    def change(module: Any) -> None:
        mlp = module.model.layers[0].mlp
        inner = mlp.forward
        mlp.forward = lambda x: inner(x) + 0.1 * x.cumsum(1)

    assert "tokens that meet in attention only" in altered(monkeypatch, saved, change)


def test_a_model_that_places_tokens_by_their_index_is_refused(saved, monkeypatch) -> None:
    def change(module: Any) -> None:
        rotary = module.model.rotary_emb
        inner = rotary.forward
        rotary.forward = lambda x, position_ids: inner(x, torch.arange(x.shape[1])[None])

    assert "place in the batch" in altered(monkeypatch, saved, change)


def test_attention_with_a_bias_or_mask_of_its_own_is_refused(saved, monkeypatch) -> None:
    def change(module: Any) -> None:
        attention = module.model.layers[1].self_attn
        inner = attention.forward
        attention.forward = lambda *a, attention_mask=None, **k: inner(
            *a, attention_mask=attention_mask + 0.0, **k
        )

    assert "another mask" in altered(monkeypatch, saved, change)


def test_an_option_that_is_not_understood_is_refused(saved, monkeypatch) -> None:
    def change(module: Any) -> None:
        attention = module.model.layers[1].self_attn
        inner = attention.forward
        attention.forward = lambda *a, **k: inner(*a, position_bias=torch.zeros(1), **k)

    assert "position_bias" in altered(monkeypatch, saved, change)


def test_a_bidirectional_layer_is_refused(saved, monkeypatch) -> None:
    def change(module: Any) -> None:
        module.config.is_causal = False

    assert "a causal mask without gaps" in altered(monkeypatch, saved, change)


def test_attention_that_our_own_would_compute_otherwise_is_refused(saved, monkeypatch) -> None:
    """Transformers' own function does something that it does not tell the interface."""
    import transformers.models.olmo2.modeling_olmo2 as code

    inner = code.eager_attention_forward

    def eager(module: Any, q: Any, k: Any, v: Any, mask: Any, **options: Any) -> Any:
        return inner(module, q, k, v * 1.5, mask, **options)

    monkeypatch.setattr(code, "eager_attention_forward", eager)
    assert "Transformers' own attention" in altered(monkeypatch, saved, lambda module: None)


def test_a_rule_that_moves_in_chunks_or_sees_ahead_is_no_window() -> None:
    from transformers import masking_utils

    from framework_torch.hf.observe import read_window

    causal = masking_utils.causal_mask_function
    assert read_window("a", causal, 1000) is None
    assert read_window("a", masking_utils.sliding_window_causal_mask_function(7), 1000) == 7
    # A window that no sequence fills is none.
    assert read_window("a", masking_utils.sliding_window_causal_mask_function(5000), 1000) is None
    chunks = masking_utils.chunked_causal_mask_function(64, torch.zeros(1, dtype=torch.int64))
    ahead = masking_utils.bidirectional_mask_function
    prefix = masking_utils.or_masks(causal, lambda b, h, q, k: k < 5)
    for rule in (chunks, ahead, prefix):
        with pytest.raises(UnsupportedError):
            read_window("a", rule, 1000)


def test_weights_that_cannot_be_allocated_are_a_matter_of_memory() -> None:
    config = {**SMALL, "architectures": ["Phi3ForCausalLM"], "model_type": "phi3"}
    files = ModelFiles(
        name="huge",
        root=Path(),
        weights=(),
        format="none",
        config={**config, "vocab_size": 2**31 - 1, "hidden_size": 2**20},
    )
    with pytest.raises(ModelError, match="do not fit into memory"):
        TransformersModel().build(files, None, "float32", 0)
