"""How weights come into modules of Transformers, and what does not fit."""

import pytest
import torch

from framework.errors import ModelError, UnsupportedError
from framework_torch.hf import TransformersModel
from framework_torch.weights.safetensors_loader import SafetensorsWeights


def test_weights_of_the_right_type_stay_views_of_the_file(saved, hf) -> None:
    """Nothing is copied, nothing asks for gradients, and tied weights are one tensor."""
    root, _ = saved("GPT2")
    found = hf.files_of(root)
    weights = SafetensorsWeights(found.weights)
    kept: dict[str, torch.Tensor] = {}
    original = weights.get

    def get(name: str) -> torch.Tensor:
        kept[name] = original(name)
        return kept[name]

    weights.get = get
    model = TransformersModel().build(found, weights, "float32", 0)
    parameters = dict(model.named_parameters())
    assert not any(parameter.requires_grad for parameter in parameters.values())
    pointers = {tensor.data_ptr() for tensor in kept.values()}
    assert {parameter.data_ptr() for parameter in parameters.values()} <= pointers
    assert "causal_lm.lm_head.weight" not in parameters  # tied to the embedding


def test_weights_in_half_precision_are_served_in_it(saved, hf) -> None:
    model = hf.build(saved("Mixtral")[0], dtype="bfloat16")
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert model.logits(torch.zeros(2, 64, dtype=torch.bfloat16)).dtype == torch.float32


def test_dummy_weights_are_the_same_for_the_same_seed(saved, hf) -> None:
    found = hf.files_of(saved("Phi3")[0])
    state = torch.random.get_rng_state()
    one, same, other = (TransformersModel().build(found, None, "float32", s) for s in (1, 1, 2))
    assert torch.equal(state, torch.random.get_rng_state())
    ids = torch.arange(5)
    assert torch.equal(one.embed(ids), same.embed(ids))
    assert not torch.equal(one.embed(ids), other.embed(ids))


@pytest.mark.parametrize("fault", ["missing", "strange", "shape"])
def test_weights_that_do_not_fit_are_named(fault, saved, tmp_path, hf) -> None:
    from safetensors.torch import load_file, save_file

    root, _ = saved("Phi3")
    (file,) = root.glob("*.safetensors")
    tensors = load_file(file)
    name = "model.layers.1.self_attn.o_proj.weight"
    if fault == "missing":
        del tensors[name]
    elif fault == "strange":
        name = "model.layers.7.self_attn.o_proj.weight"
        tensors[name] = torch.zeros(2)
    else:
        tensors[name] = torch.zeros(64, 63)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text((root / "config.json").read_text())
    with pytest.raises(ModelError) as caught:
        hf.build(tmp_path)
    assert name in str(caught.value)
    if fault == "shape":
        assert caught.value.expected == [64, 64]
        assert caught.value.found == [64, 63]


def test_names_of_gguf_files_are_refused_with_the_mend(saved, hf) -> None:
    found = hf.files_of(saved("Phi3")[0])
    weights = SafetensorsWeights(found.weights)
    weights.naming = "gguf"
    with pytest.raises(UnsupportedError, match="safetensors files of the model"):
        TransformersModel().build(found, weights, "float32", 0)
