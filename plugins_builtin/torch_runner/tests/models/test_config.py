"""What the native decoder answers for a configuration."""

import pytest

from framework.contracts.base import Rejected, Supported
from framework.contracts.model import ArchitectureQuery
from framework_torch.models.config import DecoderConfig, read_config
from framework_torch.models.definition import DecoderDefinition
from framework_torch.models.families import FAMILIES

BASE = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 128,
}


def ask(architecture: str = "LlamaForCausalLM", **changes: object):
    query = ArchitectureQuery(architecture=architecture, config={**BASE, **changes})
    return DecoderDefinition().answer(query)


def read(architecture: str = "LlamaForCausalLM", **changes: object) -> DecoderConfig:
    config = read_config(FAMILIES[architecture], {**BASE, **changes})
    assert isinstance(config, DecoderConfig), config
    return config


@pytest.mark.parametrize("architecture", sorted(FAMILIES))
def test_every_family_answers_for_a_plain_configuration(architecture: str) -> None:
    assert isinstance(ask(architecture), Supported)


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("architecture", {"architecture": "GPT2LMHeadModel"}),
        ("config.hidden_act", {"hidden_act": "quick_gelu"}),
        ("config.hidden_size", {"hidden_size": None}),
        ("config.hidden_size", {"hidden_size": "64"}),
        ("config.vocab_size", {"vocab_size": 0}),
        ("config.num_hidden_layers", {"num_hidden_layers": True}),
        ("config.num_hidden_layers", {"num_hidden_layers": 2**30}),
        ("config.vocab_size", {"vocab_size": 2**40}),
        ("config.rope_scaling.beta_fast", {"rope_scaling": {"type": "yarn", "beta_fast": "x"}}),
        ("config.rope_scaling.rope_theta", {"rope_scaling": {"type": "yarn"}, "rope_theta": 1}),
        ("config.num_key_value_heads", {"num_key_value_heads": 3}),
        ("config.head_dim", {"head_dim": 15}),
        ("config.rms_norm_eps", {"rms_norm_eps": float("nan")}),
        ("config.attention_bias", {"attention_bias": "no"}),
        ("config.tie_word_embeddings", {"tie_word_embeddings": 1}),
        ("config.quantization_config", {"quantization_config": {"bits": 4}}),
        ("config.is_causal", {"is_causal": False}),
        ("config.rope_scaling.rope_type", {"rope_scaling": {"type": "longrope"}}),
        ("config.rope_scaling.factor", {"rope_scaling": {"type": "yarn", "factor": 0}}),
        (
            "config.rope_scaling",
            {"rope_scaling": {"type": "yarn"}, "rope_parameters": {"rope_theta": 1e6}},
        ),
        ("config.rope_parameters.rope_type", {"rope_parameters": {"rope_type": ["x"]}}),
        ("config.rope_scaling.factor", {"rope_scaling": {"type": "linear"}}),
        ("config.rope_scaling.factor", {"rope_scaling": {"type": "linear", "factor": "2"}}),
        ("config.rope_parameters", {"rope_parameters": {"full_attention": {}}}),
        ("config.rope_parameters", {"rope_parameters": "default"}),
        ("config.partial_rotary_factor", {"partial_rotary_factor": 0.5}),
        (
            "config.layer_types",
            {"architecture": "Qwen2ForCausalLM", "layer_types": ["linear_attention"] * 3},
        ),
        (
            "config.layer_types",
            {
                "architecture": "Qwen3ForCausalLM",
                "use_sliding_window": True,
                "layer_types": ["full_attention"],
            },
        ),
        ("config.sliding_window", {"architecture": "MistralForCausalLM", "sliding_window": -1}),
        ("config.use_bidirectional_attention", {"use_bidirectional_attention": True}),
        ("config.attn_logit_softcapping", {"attn_logit_softcapping": 50.0}),
        ("config.final_logit_softcapping", {"final_logit_softcapping": 30.0}),
        *(
            (f"config.{field}", {"architecture": "Gemma3ForCausalLM", **changes})
            for field, changes in {
                "hidden_activation": {"hidden_activation": "silu2"},
                "sliding_window": {"sliding_window": None},
                "sliding_window_pattern": {"sliding_window_pattern": 0},
                "query_pre_attn_scalar": {"query_pre_attn_scalar": "256"},
                "final_logit_softcapping": {"final_logit_softcapping": -1},
                "attn_logit_softcapping": {"attn_logit_softcapping": 50.0},
                "layer_types": {"layer_types": ["chunked_attention"] * 3},
                "rope_parameters": {"rope_parameters": {"rope_type": "default"}},
                "rope_scaling": {"rope_scaling": 8.0},
                "rope_parameters.rope_theta": {"rope_theta": -1},
                "rope_parameters.rope_type": {"rope_scaling": {"rope_type": "longrope"}},
            }.items()
        ),
        ("architecture", {"architecture": "Gemma3ForConditionalGeneration"}),
    ],
)
def test_a_value_that_is_not_understood_is_rejected_by_its_field(field, changes) -> None:
    answer = ask(**changes)
    assert isinstance(answer, Rejected)
    assert field in [reason.field for reason in answer.reasons]


def test_all_reasons_come_at_once() -> None:
    strange = ask(hidden_act="x", is_causal=False, quantization_config={})
    assert (len(strange.reasons), strange.final) == (3, False)
    wrong = ask(hidden_act="x", vocab_size=-1, rms_norm_eps=-1, rope_theta=float("inf"))
    assert (len(wrong.reasons), wrong.final) == (3, True)


FAULTS = [
    {"rms_norm_eps": float("inf")},
    {"rms_norm_eps": -1e-6},
    {"rope_theta": float("nan")},
    {"rope_parameters": {"rope_type": "linear", "factor": float("inf")}},
    {"rope_scaling": [2]},
    {"partial_rotary_factor": "half"},
    {"hidden_act": 5},
    {"num_key_value_heads": 3},
    {"max_position_embeddings": 0},
    {"architecture": "Gemma2ForCausalLM", "final_logit_softcapping": float("nan")},
    {"architecture": "Qwen3ForCausalLM", "layer_types": ["full_attention"]},
]
STRANGE = [
    {"architecture": "GPT2LMHeadModel"},
    {"hidden_act": "quick_gelu"},
    {"attn_logit_softcapping": 50.0},
    {"partial_rotary_factor": 0.5},
    {"rope_scaling": {"type": "longrope"}},
    {"architecture": "Qwen3ForCausalLM", "layer_types": ["chunked_attention"] * 3},
]


def test_what_is_wrong_is_final_and_what_is_only_strange_is_left_to_others() -> None:
    assert [ask(**changes).final for changes in FAULTS] == [True] * len(FAULTS)
    assert [ask(**changes).final for changes in STRANGE] == [False] * len(STRANGE)


@pytest.mark.parametrize(
    ("changes", "longest"),
    [
        ({"factor": 4.0, "original_max_position_embeddings": 100}, 400),
        ({"factor": 4.0, "original_max_position_embeddings": 16}, 128),
        ({"factor": 4.0}, 512),
        ({"factor": 1e300}, 2**24),
    ],
)
def test_yarn_reaches_as_far_as_its_own_numbers_say(changes, longest) -> None:
    """Also where max_position_embeddings was not raised; both definitions agree."""
    from transformers import Qwen3Config

    from framework_torch.hf.limits import longest_sequence

    scaling = {"rope_type": "yarn", "rope_theta": 1e4, **changes}
    assert read(rope_parameters=scaling).rope.longest == longest
    theirs = Qwen3Config(max_position_embeddings=128, rope_parameters=scaling)
    assert longest_sequence(theirs) == longest


def test_a_norm_may_add_nothing() -> None:
    assert read(rms_norm_eps=0).norm_eps == 0


def test_both_ways_to_write_rotary_parameters_mean_the_same() -> None:
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1, "high_freq_factor": 4}
    new = read(rope_parameters={**scaling, "rope_theta": 7.0})
    old = read(rope_theta=7.0, rope_scaling=scaling)
    older = read(rope_theta=7.0, rope_scaling={**scaling, "type": scaling["rope_type"]})
    assert new.rope == old.rope
    assert (older.rope.variant, older.rope.theta) == ("llama3", 7.0)
    assert read().rope.theta == 10_000.0


@pytest.mark.parametrize(
    ("architecture", "changes", "windows"),
    [
        ("LlamaForCausalLM", {"sliding_window": 4}, (None, None, None)),
        ("MistralForCausalLM", {}, (4096, 4096, 4096)),
        ("MistralForCausalLM", {"sliding_window": None}, (None, None, None)),
        ("MistralForCausalLM", {"sliding_window": 7}, (7, 7, 7)),
        ("Qwen2ForCausalLM", {"sliding_window": 7}, (None, None, None)),
        (
            "Qwen2ForCausalLM",
            {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 2},
            (None, None, 7),
        ),
        (
            "Qwen3ForCausalLM",
            {
                "use_sliding_window": True,
                "sliding_window": 7,
                "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            },
            (7, None, 7),
        ),
        ("Gemma2ForCausalLM", {"sliding_window": 7}, (7, None, 7)),
        ("Gemma3ForCausalLM", {}, (4096, 4096, 4096)),
        ("Gemma3ForCausalLM", {"sliding_window_pattern": 3}, (4096, 4096, None)),
        ("Gemma3ForCausalLM", {"sliding_window": 7, "sliding_window_pattern": 2}, (7, None, 7)),
        (
            "Gemma3ForCausalLM",
            {"sliding_window": 7, "layer_types": ["full_attention"] + ["sliding_attention"] * 2},
            (None, 7, 7),
        ),
        (
            "Gemma3ForCausalLM",
            {"sliding_window": None, "layer_types": ["full_attention"] * 3},
            (None, None, None),
        ),
    ],
)
def test_windows_follow_the_family(architecture, changes, windows) -> None:
    assert read(architecture, **changes).windows == windows


def test_biases_and_head_sizes_follow_family_and_configuration() -> None:
    assert not read().qkv_bias
    assert read(attention_bias=True).output_bias
    assert not read("MistralForCausalLM", attention_bias=True).qkv_bias
    qwen = read("Qwen2ForCausalLM")
    assert (qwen.qkv_bias, qwen.output_bias) == (True, False)
    assert read("Qwen3ForCausalLM").head_size == 128
    assert read(head_dim=None).head_size == 16
    assert read(num_key_value_heads=None).kv_heads == 4


def test_gemma_reads_scales_limits_and_activation_by_its_own_keys() -> None:
    two = read("Gemma2ForCausalLM", hidden_act="relu", query_pre_attn_scalar=144)
    assert (two.softcap, two.final_softcap) == (50.0, 30.0)
    assert (two.scale, two.activation, two.head_size) == (1 / 12, "gelu_pytorch_tanh", 256)
    assert two.tied
    assert two.local_rope == two.rope
    assert read("Gemma2ForCausalLM", attn_logit_softcapping=None).softcap is None
    three = read("Gemma3ForCausalLM", hidden_activation="gelu")
    assert (three.softcap, three.final_softcap, three.scale) == (None, None, 1 / 16)
    assert three.activation == "gelu"
    assert read().scale == 0.25


def test_all_ways_to_write_the_two_rotary_embeddings_of_gemma_mean_the_same() -> None:
    """Also transformers' own reading of the old keys."""
    from transformers import Gemma3TextConfig

    linear = {"rope_type": "linear", "factor": 8.0}
    old = read("Gemma3ForCausalLM", rope_scaling=linear, rope_theta=5e5, rope_local_base_freq=77.0)
    new = read(
        "Gemma3ForCausalLM",
        rope_parameters={
            "full_attention": {**linear, "rope_theta": 5e5},
            "sliding_attention": {"rope_type": "default", "rope_theta": 77.0},
        },
    )
    theirs = Gemma3TextConfig(
        rope_scaling=dict(linear), rope_theta=5e5, rope_local_base_freq=77.0
    ).to_dict()
    converted = read("Gemma3ForCausalLM", rope_parameters=theirs["rope_parameters"])
    for one in (old, new, converted):
        assert (one.rope.variant, one.rope.theta, one.rope.values["factor"]) == ("linear", 5e5, 8.0)
        assert (one.local_rope.variant, one.local_rope.theta) == ("default", 77.0)
    plain = read("Gemma3ForCausalLM", rope_parameters=None)
    assert (plain.rope.theta, plain.local_rope.theta) == (1e6, 1e4)
    assert plain.rope.longest == plain.local_rope.longest == 128
