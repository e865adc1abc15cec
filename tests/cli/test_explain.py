"""`framework explain` of the built-in kinds."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest
from typer.testing import CliRunner

from framework.cli.app import build_app
from framework.plugins.registry import PluginRegistry


def explain(*arguments):
    ended = CliRunner().invoke(build_app(), ["explain", *arguments])
    assert ended.exit_code == 0
    return ended


def chosen(kind):
    rows = json.loads(explain(kind, "--json").stdout)["questions"][0]["candidates"]
    return [row["name"] for row in rows if row["verdict"] == "chosen"]


def test_what_the_configuration_says_is_shown_as_chosen(monkeypatch):
    assert chosen("scheduling_policy") == ["fcfs"]
    monkeypatch.setenv("FRAMEWORK_SCHEDULER__SCHEDULING_POLICY", "priority")
    assert chosen("scheduling_policy") == ["priority"]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("media_processor", "no contract yet"),
        ("kv_connector", "no contract yet"),
    ],
)
def test_an_empty_table_of_a_reserved_kind_says_why(kind, words):
    assert words in explain(kind).stderr


def test_an_empty_table_says_that_nothing_is_installed(monkeypatch):
    monkeypatch.setattr(PluginRegistry, "records", lambda registry, kind=None: [])
    assert "no scheduler_participant is installed" in explain("scheduler_participant").stderr


def test_an_attention_backend_and_a_model_source_are_chosen_without_a_model():
    built = find_spec("framework_cpu_paged._native") is not None
    assert chosen("attention_backend") == ["cpu_paged" if built else "sdpa"]
    assert chosen("model_source") == ["demo"]
    rows = json.loads(explain("platform", "--json").stdout)["questions"][0]["candidates"]
    assert {row["name"]: row["reasons"] for row in rows}["cpu"] == ["ready"]


@pytest.mark.parametrize(
    ("settings", "query"),
    [
        (["kv_cache_dtype=float16"], "dtype='float32', cache_dtype='float16'"),
        (["dtype=bfloat16"], "dtype='bfloat16', cache_dtype='bfloat16'"),
        (["dtype=float", "kv_cache_dtype=half"], "dtype='float32', cache_dtype='float16'"),
    ],
)
def test_a_backend_is_asked_about_what_the_configuration_says(settings, query, tmp_path):
    """By flags and by a file alike."""
    flags = [part for text in settings for part in ("--set", text)]
    (asked,) = json.loads(explain("attention_backend", *flags, "--json").stdout)["questions"]
    assert query in asked["query"]
    file = tmp_path / "engine.yaml"
    file.write_text("execution: {attention_backend: sdpa}\n")
    found = explain("attention_backend", *flags, "--config", str(file), "--json").stdout
    (asked,) = json.loads(found)["questions"]
    assert [r["name"] for r in asked["candidates"] if r["verdict"] == "chosen"] == ["sdpa"]
    assert query in asked["query"]


def test_each_operator_has_a_table_of_kernels(monkeypatch):
    """And the operator's choice is seen in it."""

    def found():
        questions = json.loads(explain("kernel", "--json").stdout)["questions"]
        return [
            next(row["name"] for row in question["candidates"] if row["verdict"] == "chosen")
            for question in questions
        ]

    packed = ["cpu_packed"] * 2
    assert found() == [*packed, "fused_norm", *packed]
    monkeypatch.setenv("FRAMEWORK_EXECUTION__KERNELS", "{rms_norm: plain}")
    assert found() == [*packed, "plain", *packed]
    assert "let another kernel serve it" in explain("kernel").stdout


@pytest.fixture
def folder(tmp_path):
    """A model of which only the head of its weights is there."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 96,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"never read")
    return tmp_path


def test_a_model_is_asked_about_without_its_weights(folder):
    def verdicts(kind):
        (question,) = json.loads(explain(kind, "--model", str(folder), "--json").stdout)[
            "questions"
        ]
        rows = question["candidates"]
        return {row["name"]: row["verdict"] for row in rows}

    assert verdicts("model_source") == {"demo": "rejected", "local": "chosen", "hub": "rejected"}
    assert verdicts("weight_loader") == {"safetensors": "chosen", "gguf": "rejected"}
    assert verdicts("tokenizer") == {"hf": "chosen", "gguf": "rejected"}
    assert verdicts("model") == {
        "decoder": "chosen",
        "transformers": "supported",
        "transformers_encoder": "rejected",
    }
    strange = json.loads((folder / "config.json").read_text())
    for change, expected in [({"hidden_act": "quick_gelu"}, "chosen"), ({}, "supported")]:
        (folder / "config.json").write_text(json.dumps({**strange, **change}))
        assert verdicts("model")["transformers"] == expected


def test_without_a_model_the_table_says_how_to_ask_more():
    assert "--model MODEL" in explain("weight_loader").stderr
    ended = CliRunner().invoke(build_app(), ["explain", "platform", "--model", "demo"])
    assert "not chosen by the model alone" in str(ended.exception)


H100 = ("attention", "--platform", "cuda", "--capability", "9.0")


def test_a_card_that_is_not_there_has_a_table(folder):
    """Of attention, for each type of layer of the model; a backend for processors is not for it."""
    config = json.loads((folder / "config.json").read_text())
    layers = ["sliding_attention", "full_attention"] * 2
    more = {"num_key_value_heads": 2, "head_dim": 24, "sliding_window": 5, "layer_types": layers}
    (folder / "config.json").write_text(json.dumps({**config, **more}))
    asked = json.loads(explain(*H100, "--model", str(folder), "--json").stdout)["questions"]
    for question, window in zip(asked, ("window=5", "window=None"), strict=True):
        verdicts = {row["name"]: row["verdict"] for row in question["candidates"]}
        assert verdicts == {"cpu_paged": "rejected", "sdpa": "supported", "triton": "chosen"}
        shape = "head_size=24, head_size_v=24, num_heads=4, num_kv_heads=2"
        for words in (window, shape, "platform='cuda', capability=(9, 0)", "dtype='bfloat16'"):
            assert words in question["query"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_attention_heads": None}, "num_attention_heads, an integer"),
        ({"hidden_size": "many"}, "hidden_size, an integer"),
        ({"sliding_window": -1}, "sliding_window, an integer"),
    ],
)
def test_a_configuration_that_does_not_tell_is_an_error(folder, change, words):
    config = {**json.loads((folder / "config.json").read_text()), **change}
    (folder / "config.json").write_text(json.dumps(config))
    ended = CliRunner().invoke(build_app(), ["explain", *H100, "--model", str(folder)])
    assert words in str(ended.exception)


def test_a_model_is_asked_about_on_this_machine_too(folder):
    (asked,) = json.loads(explain("attention", "--model", str(folder), "--json").stdout)[
        "questions"
    ]
    assert "platform='cpu'" in asked["query"]
    assert "head_size=16, head_size_v=16, num_heads=4, num_kv_heads=4" in asked["query"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--capability", "9.0"], "without a platform"),
        (["--platform", "cpu", "--capability", "9.0"], "have no capabilities"),
        (["--platform", "cuda", "--capability", "nine"], "such as 9.0"),
        (["--platform", "nowhere", "--capability", "9.0"], "nowhere"),
    ],
)
def test_a_place_that_makes_no_sense_is_an_error(flags, words):
    ended = CliRunner().invoke(build_app(), ["explain", "attention", *flags])
    assert ended.exit_code
    assert words in str(ended.exception)


def test_a_platform_that_is_named_and_not_ready_says_why(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    ended = CliRunner().invoke(build_app(), ["explain", "attention", "--platform", "cuda"])
    assert "absent; " in str(ended.exception)
    assert "add --capability" in str(ended.exception)
