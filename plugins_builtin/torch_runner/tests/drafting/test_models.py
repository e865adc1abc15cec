"""Proposers with models: what they propose is what they say when all is computed at once."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional

from framework.contracts.sampling import SamplingParams
from framework.errors import ConfigError, ModelError
from framework.testing.driver import Driver
from framework_torch.drafting.lengths import DraftLengths
from framework_torch.runner import TorchRunner

PROMPT = [5, 17, 80, 3, 41, 9, 66, 2, 11]
GREEDY = SamplingParams(temperature=0.0, max_tokens=64)
DRAFTS = 4
HIDDEN, VOCAB, HEADS, KV_HEADS, INNER = 64, 96, 4, 2, 80


@pytest.fixture(autouse=True)
def all_drafts(monkeypatch):
    """As many as may be, however few are right."""
    monkeypatch.setattr(
        DraftLengths, "wanted", lambda self, slots, rows: np.full(len(slots), DRAFTS, np.int32)
    )


@pytest.fixture
def target(tiny):
    return tiny("llama")


@pytest.fixture
def started(target, context):
    """started(proposer, files of its model, ...) -> a bound driver."""

    def make(proposer, draft_model, page_tokens=4, **changes):
        runner = TorchRunner()
        given = replace(
            context(target.files),
            proposer=proposer,
            max_drafts=DRAFTS,
            draft_model=draft_model,
            **changes,
        )
        info = runner.load(given)
        assert info.lookahead == (0 if proposer == "medusa" else DRAFTS)
        driver = Driver(runner, page_tokens=page_tokens)
        driver.bind(info)
        return driver

    return make


def drafts_of(result, row):
    if not len(result.draft_ids):
        return []
    return result.draft_ids[result.draft_offsets[row] : result.draft_offsets[row + 1]].tolist()


def tell(driver, rows, drafts):
    """One step; each row computes so many tokens and its drafts."""
    rows = tuple((slot, new + len(drafts.get(slot, ()))) for slot, new in rows)
    return driver.run(*rows, drafts=drafts, drafts_wanted=DRAFTS)


# A draft model.


@pytest.mark.parametrize("draft", ["qwen3", "mistral", "llama"])
def test_a_draft_model_proposes_what_it_would_say(started, tiny, target, draft):
    """In chunks of a prompt, after drafts that were accepted or refused, beside another."""
    own = tiny(draft)
    sizes = 4 if draft == "llama" else [4, 4]  # of the same sort they share a group
    driver = started("draft_model", own.files, sizes)
    driver.admit(0, PROMPT, GREEDY)
    driver.admit(3, PROMPT[2:], GREEDY)
    first = tell(driver, [(0, 4), (3, 7)], {})
    assert drafts_of(first, 0) == [], "nothing was sampled yet"
    drafts = {3: drafts_of(first, 1)}
    for turn in range(5):
        result = tell(driver, [(0, 5 if turn == 0 else 1), (3, 1)], drafts)
        drafts = {}
        for row, slot in enumerate((0, 3)):
            known = driver.requests[slot].tokens
            assert drafts_of(result, row) == own.greedy(known, DRAFTS), (turn, slot)
            # The model's own next tokens, so that some are accepted; then what was proposed.
            right = target.greedy(known, 2)
            drafts[slot] = [*right, (right[0] + 1) % VOCAB] if turn % 2 else drafts_of(result, row)


def test_the_same_model_as_a_draft_is_always_right(started, target, helpers):
    driver = started("draft_model", target.files)
    for sampling in (GREEDY, SamplingParams(temperature=1.0, seed=4, max_tokens=64, top_p=0.9)):
        driver.admit(0, PROMPT, sampling, seed=4)
        result = tell(driver, [(0, len(PROMPT))], {})
        for _ in range(4):
            result = tell(driver, [(0, 1)], {0: drafts_of(result, 0)})
            assert result.accepted.tolist() == [DRAFTS]
        driver.release(0)


def test_a_slot_forgets_who_was_in_it(started, tiny):
    own = tiny("qwen3")
    driver = started("draft_model", own.files, [4, 4])
    for prompt in (PROMPT, PROMPT[::-1]):
        driver.admit(0, prompt, GREEDY)
        result = tell(driver, [(0, len(prompt))], {})
        assert drafts_of(result, 0) == own.greedy(driver.requests[0].tokens, DRAFTS)
        driver.release(0)


def test_a_draft_model_of_another_vocabulary_is_refused(started, tiny):
    with pytest.raises(ConfigError, match=r"(?s)another vocabulary.*96 tokens.*64"):
        started("draft_model", tiny("qwen3", vocab_size=64).files, [4, 4])


# Medusa.


def save_heads(folder, config, tensors):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"architectures": ["Heads"], **config}))
    save_file(tensors, folder / "model.safetensors")
    return folder


def medusa_tensors(heads=DRAFTS, layers=2, prefix="", seed=0):
    torch.manual_seed(seed)
    made = {}
    for head in range(heads):
        for layer in range(layers):
            name = f"{prefix}{head}.{layer}.linear"
            made[f"{name}.weight"] = torch.randn(HIDDEN, HIDDEN) / 8
            made[f"{name}.bias"] = torch.randn(HIDDEN)
        made[f"{prefix}{head}.{layers}.weight"] = torch.randn(VOCAB, HIDDEN)
    return made


def hidden_of(target, tokens):
    """After the final norm, [n, H]."""
    with torch.no_grad():
        return target.reference.model(torch.tensor([tokens])).last_hidden_state[0]


@pytest.mark.parametrize("prefix", ["", "medusa_head."])
def test_medusa_heads_read_the_state_of_the_last_computed_token(
    started, target, helpers, tmp_path, prefix
):
    tensors = medusa_tensors(prefix=prefix)
    config = {"medusa_num_heads": DRAFTS, "medusa_num_layers": 2}
    driver = started("medusa", helpers.files_of(save_heads(tmp_path / "m", config, tensors)))
    driver.admit(1, PROMPT, GREEDY)
    driver.admit(0, PROMPT[4:], GREEDY)
    result = tell(driver, [(1, 9), (0, 5)], {})
    for turn in range(4):
        drafts = {}
        for row, slot in enumerate((1, 0)):
            known = driver.requests[slot].tokens
            state = hidden_of(target, known[:-1])[-1]
            expected = []
            for head in range(DRAFTS):
                x = state
                for layer in range(2):
                    name = f"{prefix}{head}.{layer}.linear"
                    linear = functional.linear(
                        x, tensors[f"{name}.weight"], tensors[f"{name}.bias"]
                    )
                    x = x + functional.silu(linear)
                expected.append(int((tensors[f"{prefix}{head}.2.weight"] @ x).argmax()))
            assert drafts_of(result, row) == expected
            drafts[slot] = expected if turn % 2 else target.greedy(known, 2)
        result = tell(driver, [(1, 1), (0, 1)], drafts)


# EAGLE.


def eagle_tensors(layers=1, seed=0):
    torch.manual_seed(seed)
    size = HIDDEN // HEADS

    def random(*shape):
        return torch.randn(*shape) / shape[-1] ** 0.5

    made = {"fc.weight": random(HIDDEN, 2 * HIDDEN), "fc.bias": random(HIDDEN)}
    for index in range(layers):
        prefix = f"layers.{index}."
        for name, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            made[f"{prefix}self_attn.{name}_proj.weight"] = random(heads * size, HIDDEN)
        made[f"{prefix}self_attn.o_proj.weight"] = random(HIDDEN, HEADS * size)
        made[f"{prefix}mlp.gate_proj.weight"] = random(INNER, HIDDEN)
        made[f"{prefix}mlp.up_proj.weight"] = random(INNER, HIDDEN)
        made[f"{prefix}mlp.down_proj.weight"] = random(HIDDEN, INNER)
        made[f"{prefix}post_attention_layernorm.weight"] = 1 + random(HIDDEN)
        if index:
            made[f"{prefix}input_layernorm.weight"] = 1 + random(HIDDEN)
    return made


EAGLE_CONFIG = {
    "hidden_size": HIDDEN,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "intermediate_size": INNER,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500.0,
}


def eagle_states(tensors, layers, hidden, embedded):
    """All positions at once, by Transformers' own decoder layer."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding

    config = LlamaConfig(**EAGLE_CONFIG, vocab_size=VOCAB)
    config._attn_implementation = "eager"
    x = functional.linear(
        torch.cat((embedded, hidden), -1), tensors["fc.weight"], tensors["fc.bias"]
    )[None]
    count = x.shape[1]
    turns = LlamaRotaryEmbedding(config)(x, torch.arange(count)[None])
    mask = torch.full((count, count), float("-inf")).triu(1)[None, None]
    for index in range(layers):
        layer = LlamaDecoderLayer(config, index).eval()
        own = {
            name.removeprefix(f"layers.{index}."): tensor
            for name, tensor in tensors.items()
            if name.startswith(f"layers.{index}.")
        }
        first = own.pop("input_layernorm.weight", None)
        layer.load_state_dict(own, strict=False)
        if first is None:
            layer.input_layernorm = torch.nn.Identity()
        else:
            layer.input_layernorm.weight.data = first
        x = layer(x, attention_mask=mask, position_embeddings=turns)
        x = x[0] if isinstance(x, tuple) else x
    return x.reshape(count, HIDDEN)


@torch.no_grad()
def eagle_drafts(tensors, layers, target, known):
    """What the head proposes after `known`, everything recomputed for each draft."""
    states = hidden_of(target, known[:-1])
    tokens = list(known[1:])
    drafts = []
    for _ in range(DRAFTS):
        embedded = target.reference.model.embed_tokens(torch.tensor(tokens))
        made = eagle_states(tensors, layers, states, embedded)
        drafts.append(int(target.reference.lm_head(made[-1]).argmax()))
        states = torch.cat((states, made[-1:]))
        tokens.append(drafts[-1])
    return drafts


@pytest.mark.parametrize("layers", [1, 2])
def test_an_eagle_head_goes_on_from_state_to_state(started, target, helpers, tmp_path, layers):
    tensors = eagle_tensors(layers)
    config = {**EAGLE_CONFIG, "num_hidden_layers": layers}
    driver = started("eagle", helpers.files_of(save_heads(tmp_path / "e", config, tensors)))
    driver.admit(2, PROMPT, GREEDY)
    driver.admit(0, PROMPT[3:], GREEDY)
    first = tell(driver, [(2, 5), (0, 6)], {})
    assert drafts_of(first, 0) == []
    drafts = {0: drafts_of(first, 1)}
    for turn in range(4):
        result = tell(driver, [(2, 4 if turn == 0 else 1), (0, 1)], drafts)
        drafts = {}
        for row, slot in enumerate((2, 0)):
            known = driver.requests[slot].tokens
            expected = eagle_drafts(tensors, layers, target, known)
            assert drafts_of(result, row) == expected, (turn, slot)
            right = target.greedy(known, 2)
            drafts[slot] = [*right, (right[0] + 1) % VOCAB] if turn % 2 else expected


# Files that do not fit.


@pytest.mark.parametrize(
    ("proposer", "config", "tensors", "words"),
    [
        ("medusa", {}, medusa_tensors, "medusa_num_heads"),
        ("medusa", {"medusa_num_heads": 2}, medusa_tensors, "more drafts a step than heads"),
        (
            "medusa",
            {"medusa_num_heads": 5, "medusa_num_layers": 2},
            medusa_tensors,
            "lack a tensor",
        ),
        (
            "medusa",
            {"medusa_num_heads": 4, "medusa_num_layers": 1},
            medusa_tensors,
            "lack a tensor",
        ),
        ("eagle", {**EAGLE_CONFIG, "hidden_size": 32}, eagle_tensors, "made for another model"),
        ("eagle", {**EAGLE_CONFIG, "intermediate_size": 8}, eagle_tensors, "has another shape"),
        ("eagle", {**EAGLE_CONFIG, "rope_scaling": {"factor": 2}}, eagle_tensors, "rope_scaling"),
        (
            "eagle",
            EAGLE_CONFIG,
            lambda: {**eagle_tensors(), "d2t": torch.zeros(4)},
            "(?s)does not know.*d2t",
        ),
    ],
)
def test_files_that_do_not_fit_are_refused_with_the_reason(
    started, helpers, tmp_path, proposer, config, tensors, words
):
    files = helpers.files_of(save_heads(tmp_path / "x", config, tensors()))
    with pytest.raises((ModelError, ConfigError), match=words):
        started(proposer, files)


def test_heads_must_be_named(started):
    for proposer in ("medusa", "eagle"):
        with pytest.raises(ModelError, match="speculative_model"):
            started(proposer, None)
