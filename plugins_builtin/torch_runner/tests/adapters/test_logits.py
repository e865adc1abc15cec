"""What an adapter computes is what the model computes into which it was merged."""

import dataclasses

import numpy as np
import pytest
import torch

from framework.contracts.lora import LowRank
from framework.contracts.sampling import SamplingParams
from framework.errors import ConfigError, SelectionError
from framework_torch.adapters.linear import LOW_RANK
from framework_torch.runner import TorchRunner

SCORED = SamplingParams(temperature=0.0, max_tokens=64, logprobs=-1, prompt_logprobs=-1)
PROMPTS = ([5, 9, 3, 80, 41], [7, 2, 2, 61], [88, 15, 4, 9, 30, 11], [6, 5])
RANKS = (8, 16, 64)
TOLERANCE = 1e-4
APART = "layers operator by operator, so that they can be changed"
THIN = {"down": torch.ones(4, 64), "up": torch.ones(96, 4), "scale": 1.0}


def run_mixed(driver, numbers, helpers, steps=3):
    """Logits of all prompts and of `steps` decoded tokens, mixed in every step: slot -> [n, V], and
    the tokens of each."""
    for slot, (prompt, number) in enumerate(zip(PROMPTS, numbers, strict=False)):
        driver.admit(slot, prompt, SCORED, adapter=number)
    rows = [(slot, len(prompt)) for slot, prompt in enumerate(PROMPTS[: len(numbers)])]
    result = driver.run(*rows)
    assert not result.errors
    found = {}
    for part in result.prompt_logprobs:
        count = len(part.logprobs.offsets) - 1
        found[part.row] = [helpers.whole(part.logprobs, at) for at in range(count)]
    for step in range(steps):
        for row, _ in enumerate(rows):
            found[row].append(helpers.whole(result.logprobs, row))
        if step + 1 < steps:
            result = driver.run(*((slot, 1) for slot, _ in rows))
            assert not result.errors
    tokens = {slot: driver.requests[slot].tokens for slot, _ in rows}
    return {row: np.stack(values) for row, values in found.items()}, tokens


@pytest.fixture
def mixed(drive, helpers, lora, saved):
    """(driver, adapters): three of rank 8, 16 and 64 under the load ids 1, 2 and 3."""

    def make(files, reference, ends=None, **changes):
        more = {} if ends is None else {"ends": ends}
        adapters = [lora.random_adapter(reference, r, i, **more) for i, r in enumerate(RANKS)]
        driver = drive(files, adapters=lora.limits, logprobs_mode="raw_logits", **changes)
        for number, adapter in enumerate(adapters, 1):
            told = lora.ready(driver.runner, number, saved(adapter))
            assert told["state"] == "ready", told
            assert told["rank"] == RANKS[number - 1]
        return driver, adapters

    return make


WAYS = {
    "plain": {"kernel_set": "plain"},
    "layers": {"kernel_set": "best"},
    "parts": {"kernels": {"rms_norm": "fused_norm"}},
}


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma2"])
def test_three_ranks_in_one_batch_are_each_the_merged_model(tiny, mixed, helpers, lora, name, way):
    """Rank 8, 16 and 64 and no adapter at all, prompts and decode steps, float32; with kernels for
    whole layers, for their parts, and none."""
    model = tiny(name)
    driver, adapters = mixed(model.files, model.reference, **WAYS[way])
    found, tokens = run_mixed(driver, (1, 2, 3, None), helpers)
    references = [*(lora.merged(model.reference, a) for a in adapters), model.reference]
    for slot, reference in enumerate(references):
        expected = lora.logits_of(reference, tokens[slot][:-1])
        plain = lora.logits_of(model.reference, tokens[slot][:-1])
        np.testing.assert_allclose(found[slot], expected, rtol=0, atol=TOLERANCE)
        assert (np.abs(found[slot] - plain.numpy()).max() > 0.01) == (slot < 3)
    driver.runner.close()


def test_who_has_none_gets_the_bits_of_a_step_without_adapters(tiny, mixed, helpers):
    """The rows of others are not touched."""
    model = tiny("llama")
    for numbers in ((1, 2, 3, None), (None, None, None, None)):
        driver, _ = mixed(model.files, model.reference)
        found, _ = run_mixed(driver, numbers, helpers)
        if numbers[0]:
            before = found[3]
        driver.runner.close()
    assert np.array_equal(before, found[3])


def test_a_row_has_the_same_bits_whatever_its_company(tiny, mixed, helpers, drive, lora):
    """Alone, beside the same adapter, beside others."""
    model = tiny("llama")
    company = [(2,), (2, 1, 3, None), (2, 2, 2, 2), (2, None, 2, 1)]
    seen = []
    for numbers in company:
        driver, _ = mixed(model.files, model.reference)
        seen.append(run_mixed(driver, numbers, helpers)[0][0])
        driver.runner.close()
    for other in seen[1:]:
        assert np.array_equal(seen[0], other)


def test_some_modules_of_a_fused_map_and_some_layers(tiny, drive, helpers, lora, saved):
    """Only v and up, only in the second layer."""
    model = tiny("llama")
    adapter = lora.random_adapter(model.reference, 4, 1, ("v_proj", "up_proj"), layers=".1.")
    assert len(adapter.updates) == 2
    driver = drive(model.files, adapters=lora.limits, logprobs_mode="raw_logits")
    assert lora.ready(driver.runner, 1, saved(adapter))["state"] == "ready"
    found, tokens = run_mixed(driver, (1,), helpers)
    expected = lora.logits_of(lora.merged(model.reference, adapter), tokens[0][:-1])
    np.testing.assert_allclose(found[0], expected, rtol=0, atol=TOLERANCE)
    driver.runner.close()


def test_over_eight_bits_an_adapter_is_as_exact_as_the_model(tiny, mixed, helpers, lora):
    """Its own numbers are not quantized: the distance to the merged model in float32 is that of
    the model without an adapter."""
    model = tiny("llama")
    driver, adapters = mixed(model.files, model.reference, quantization="int8")
    found, tokens = run_mixed(driver, (1, 2, 3, None), helpers)
    far = []
    references = [*(lora.merged(model.reference, a) for a in adapters), model.reference]
    for slot, reference in enumerate(references):
        expected = lora.logits_of(reference, tokens[slot][:-1]).numpy()
        far.append(np.abs(found[slot] - expected).max() / np.abs(expected).max())
    assert 0 < far[3] < 0.1
    assert max(far[:3]) < 3 * far[3]
    driver.runner.close()


@pytest.mark.parametrize(
    ("architecture", "ends"),
    [
        ("GPT2", ("c_attn", "c_proj", "c_fc")),  # whose weights lie the other way round
        ("Phi3", ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")),
        ("OPT", ("q_proj", "v_proj", "fc1", "fc2")),
    ],
)
def test_models_of_transformers_are_changed_in_the_same_way(
    tiny_hf, mixed, helpers, lora, architecture, ends
):
    """Their own modules, by hooks."""
    root, reference = tiny_hf(architecture)
    driver, adapters = mixed(helpers.files_of(root), reference, ends)
    found, tokens = run_mixed(driver, (1, 2, 3, None), helpers)
    references = [*(lora.merged(reference, a) for a in adapters), reference]
    for slot, changed in enumerate(references):
        expected = lora.logits_of(changed, tokens[slot][:-1])
        np.testing.assert_allclose(found[slot], expected, rtol=0, atol=TOLERANCE)
    driver.runner.close()


def test_experts_are_no_linear_maps_of_all_tokens(tiny_hf, drive, helpers, lora, saved):
    """An adapter for what gets some of the tokens is refused; one for attention is not."""
    root, reference = tiny_hf("Mixtral")
    driver = drive(helpers.files_of(root), adapters=lora.limits)
    good = lora.random_adapter(reference, 4, 1, ("q_proj", "v_proj"))
    assert lora.ready(driver.runner, 1, saved(good))["state"] == "ready"
    expert = "model.layers.0.mlp.experts.0.w1"
    bad = dataclasses.replace(good, updates={**good.updates, expert: LowRank(**THIN)})
    told = lora.ready(driver.runner, 2, saved(bad))
    assert told["state"] == "failed"
    assert expert in told["reason"]
    driver.runner.close()


def test_a_module_under_two_names_is_changed_once():
    """Whichever of the names an adapter uses."""
    from framework_torch.hf import adapter_sites as sites

    shared = torch.nn.Linear(4, 4, bias=False)

    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.ModuleDict({"inner": shared})
            self.second = self.first["inner"]

    names = {}
    for name, part in Twice().named_modules(remove_duplicate=False):
        if part is shared:
            names.setdefault(part, []).append(name)
    site = sites._site(shared, names[shared])
    assert site.parts == {"first.inner": (0, 4), "second": (0, 4)}
    calls = []
    site.wrap(lambda x, result: calls.append(len(x)) or result)
    shared(torch.zeros(1, 3, 4))
    assert calls == [3]


@pytest.mark.parametrize(
    ("changes", "by"),
    [
        ({}, "cpu_packed"),
        ({"kernels": {"linear": "cpu_packed"}}, f"cpu_packed; {APART}"),
        ({"kernel_set": "plain"}, f"plain, the bits of a row depend on its company; {APART}"),
        ({"kernel_set": "plain", "kernels": {LOW_RANK: "cpu_packed"}}, f"cpu_packed; {APART}"),
    ],
)
def test_the_platform_or_the_operator_says_what_computes_updates(tiny, context, lora, changes, by):
    asked = context(tiny("llama").files, adapters=lora.limits, **changes)
    notes = TorchRunner().load(asked).notes
    assert any(note.endswith(f"; computed by {by}") for note in notes), notes


def test_one_that_cannot_is_an_error_and_so_is_one_without_adapters(tiny, drive, lora):
    files = tiny("llama").files
    with pytest.raises(SelectionError, match="chosen kernel 'plain' cannot serve"):
        drive(files, adapters=lora.limits, kernels={LOW_RANK: "plain"})
    with pytest.raises(ConfigError, match="which this model does not use"):
        drive(files, kernels={LOW_RANK: "cpu_packed"})
