"""Files of adapters that cannot be served are refused with the reason, and the next are served."""

import json
import os

import pytest
import torch

from framework_lora.config import LARGEST

LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"


def configured(root, **changes):
    """The folder with another configuration; None takes a key out."""
    settings = json.loads((root / CONFIG).read_text()) | changes
    (root / CONFIG).write_text(json.dumps({k: v for k, v in settings.items() if v is not None}))
    return root


def with_tensors(root, change):
    from safetensors.torch import load_file, save_file

    tensors = load_file(root / TENSORS)
    change(tensors)
    save_file(tensors, root / TENSORS)
    return root


def cut(root):
    whole = (root / TENSORS).read_bytes()
    (root / TENSORS).write_bytes(whole[: len(whole) // 2])
    return root


def only_pickled(root):
    (root / TENSORS).rename(root / "adapter_model.bin")
    return root


def one_half(tensors):
    del tensors[next(name for name in tensors if "lora_B" in name)]


def without(part):
    """Takes the updates out whose names hold `part`."""

    def change(tensors):
        for name in [name for name in tensors if part in name]:
            del tensors[name]

    return change


def not_finite(tensors):
    tensors[next(iter(tensors))][0, 0] = float("nan")


def integers(tensors):
    name = next(iter(tensors))
    tensors[name] = tensors[name].to(torch.int32)


def eight_bits(tensors):
    name = next(iter(tensors))
    tensors[name] = tensors[name].to(torch.float8_e4m3fn)


def two_names(tensors):
    for name, tensor in list(tensors.items()):
        tensors[name.removeprefix("base_model.model.")] = tensor.clone()


def large(tensors):
    name = next(name for name in tensors if "lora_A" in name)
    tensors[name] = tensors[name].double() * 1e300


def times(factor):
    def change(tensors):
        for tensor in tensors.values():
            tensor *= factor

    return change


def pipe(root):
    (root / CONFIG).unlink()
    os.mkfifo(root / CONFIG)
    return root


def long(root):
    with (root / CONFIG).open("ab") as file:
        file.truncate(LARGEST + 1)
    return root


def of_embeddings(tensors):
    tensors["base_model.model.model.embed_tokens.lora_embedding_A"] = torch.zeros(4, 96)


def magnitudes(tensors):
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector"
    tensors[name] = torch.zeros(64)


FILES = {
    "bias": (lambda root: configured(root, bias="all"), "only bias none is served"),
    "DoRA": (lambda root: configured(root, use_dora=True), "DoRA"),
    "modules": (lambda root: configured(root, modules_to_save=["lm_head"]), "modules_to_save"),
    "pissa": (lambda root: configured(root, init_lora_weights="pissa"), "init_lora_weights"),
    "peft type": (lambda root: configured(root, peft_type="IA3"), "only adapters of peft_type"),
    "no alpha": (lambda root: configured(root, lora_alpha="high"), "lora_alpha is invalid"),
    "infinite": (lambda root: configured(root, lora_alpha=1e300), "lora_alpha is invalid"),
    "rank": (lambda root: configured(root, r=0, rank_pattern=None), "r is invalid"),
    "expression": (lambda root: configured(root, rank_pattern={"q(": 4}), "regular expression"),
    "not selected": (
        lambda root: configured(root, target_modules=["q_proj"]),
        "has updates of modules that adapter_config.json does not select",
    ),
    "layers": (
        lambda root: configured(root, target_modules=LINEARS, layers_to_transform=[1]),
        "found model.layers.0.mlp.down_proj",
    ),
    "excluded": (lambda root: configured(root, exclude_modules=["v_proj"]), "does not select"),
    "no targets": (lambda root: configured(root, target_modules=None), "target_modules is not"),
    "one is missing": (
        lambda root: with_tensors(root, without("layers.1.self_attn.v_proj")),
        "it has no update of modules that it says to change",
    ),
    "all of one layer are missing": (
        lambda root: configured(
            with_tensors(root, without("layers.1.")), target_modules="all-linear"
        ),
        "found none of model.layers.1.",
    ),
    "unknown": (lambda root: configured(root, new_of_2031=2), "'new_of_2031' is not known"),
    "another rank": (lambda root: configured(root, rank_pattern=None, r=5), "another rank"),
    "a list": (lambda root: (root / CONFIG).write_text("[1]") and root, "JSON object"),
    "no JSON": (lambda root: (root / CONFIG).write_text("{") and root, "cannot be read"),
    "deep JSON": (lambda root: (root / CONFIG).write_text("[" * 10**5) and root, "cannot be read"),
    "no config": (lambda root: (root / CONFIG).unlink() or root, f"without {CONFIG}"),
    "cut": (cut, "cannot be read; expected a safetensors file"),
    "pickled": (only_pickled, "pickled weights are not opened"),
    "no folder": (lambda root: root / "nowhere", "No such file"),
    "a file": (lambda root: root / CONFIG, "Not a directory"),
    "half": (lambda root: with_tensors(root, one_half), "one half of an update"),
    "NaN": (lambda root: with_tensors(root, not_finite), "no finite number"),
    "integers": (lambda root: with_tensors(root, integers), "no floating-point numbers"),
    "8 bits": (lambda root: with_tensors(root, eight_bits), "no floating-point numbers of 16 bits"),
    "two names": (lambda root: with_tensors(root, two_names), "holds a tensor under two names"),
    "large": (lambda root: with_tensors(root, large), "too large for float32"),
    "large scale": (
        lambda root: with_tensors(configured(root, alpha_pattern={".*": 1e30}), times(1e10)),
        "B times the scale, are too large",
    ),
    "a pipe": (pipe, "expected a file"),
    "long settings": (long, f"expected at most {LARGEST} bytes"),
    "embedding": (lambda root: with_tensors(root, of_embeddings), "more than low-rank updates"),
    "magnitudes": (lambda root: with_tensors(root, magnitudes), "more than low-rank updates"),
    "empty": (lambda root: with_tensors(root, dict.clear), "is empty"),
}


@pytest.mark.parametrize("what", list(FILES))
def test_files_that_cannot_be_served_are_refused_and_the_next_ones_are_not(
    driver, good, saved, lora, what
):
    """The reason is told, and the load id may be tried again once the files are mended."""
    spoil, reason = FILES[what]
    told = lora.ready(driver.runner, 1, spoil(saved(good)))
    assert told["state"] == "failed"
    assert reason in told["reason"]
    assert "\n" not in told["reason"]
    assert lora.ready(driver.runner, 1, saved(good))["state"] == "ready"
