"""Which modules have an update and how large it counts, by PEFT's settings.

What is expected is what PEFT 0.21 does; `target_modules` and the like were also compared with its
own functions, for thousands of random settings.
"""

import json
import math

import pytest

from framework.errors import FrameworkError, ModelError, UnsupportedError
from framework_lora import patterns
from framework_lora.config import NAME, read_config
from framework_lora.patterns import Patterns

Q = "model.layers.1.self_attn.q_proj"
K = "model.layers.1.self_attn.k_proj"


@pytest.fixture
def read(tmp_path):
    def one(**settings):
        usual = {"peft_type": "LORA", "target_modules": ["q_proj"]}
        (tmp_path / NAME).write_text(json.dumps({**usual, **settings}))
        return read_config(tmp_path)

    return one


@pytest.mark.parametrize(
    ("settings", "q", "k"),
    [
        ({"r": 8, "lora_alpha": 16}, 2.0, 2.0),
        ({"r": 16, "lora_alpha": 8, "use_rslora": True}, 2.0, 2.0),
        ({"r": 8, "lora_alpha": 8, "alpha_pattern": {"q_proj": 32}}, 4.0, 1.0),
        ({"r": 8, "lora_alpha": 8, "rank_pattern": {"self_attn.k_proj": 2}}, 1.0, 4.0),
        ({"r": 8, "lora_alpha": 8, "rank_pattern": {f"^{Q}": 4}}, 2.0, 1.0),
        ({"r": 8, "lora_alpha": 8, "rank_pattern": {"proj": 4, "^self_attn.q_proj": 4}}, 1.0, 1.0),
        # A key is an expression: a dot is any character, and the first that fits is taken.
        ({"r": 8, "lora_alpha": 8, "rank_pattern": {"q.proj": 2, "q_proj": 4}}, 4.0, 1.0),
        ({"r": 8, "lora_alpha": 8, "rank_pattern": {"self": 2, r"(q|k)_proj": 4}}, 2.0, 2.0),
        ({"r": 8, "lora_alpha": 8, "alpha_pattern": {r".*\.1\..*k_\w+": 16}}, 1.0, 2.0),
        (
            {
                "r": 9,
                "lora_alpha": 3,
                "use_rslora": True,
                "rank_pattern": {"q_proj": 16},
                "alpha_pattern": {"k_proj": 6},
            },
            3 / 4,
            2.0,
        ),
    ],
)
def test_the_scale_is_alpha_over_the_rank_or_its_root(read, settings, q, k):
    config = read(**settings)
    assert math.isclose(config.scale_of(Q), q)
    assert math.isclose(config.scale_of(K), k)


NAMES = (
    *(f"model.layers.{n}.self_attn.{part}_proj" for n in (0, 1, 11) for part in "qk"),
    "model.layers.1.experts.0.up_proj",
    "h.2.attn.c_attn",
    "lm_head",
)


@pytest.mark.parametrize(
    ("settings", "selected"),
    [
        ({"target_modules": ["q_proj"]}, (0, 2, 4)),
        ({"target_modules": ["proj"]}, ()),
        ({"target_modules": ["self_attn.k_proj", Q]}, (1, 2, 3, 5)),
        ({"target_modules": []}, ()),
        ({"target_modules": "q_proj"}, ()),
        ({"target_modules": r".*\.(0|11)\..*_proj"}, (0, 1, 4, 5, 6)),
        ({"target_modules": r"(?i).*Q_PROJ|LM_HEAD"}, (0, 2, 4, 8)),
        ({"target_modules": r".*\.1"}, ()),
        ({"target_modules": "all-linear"}, range(9)),
        ({"target_modules": ["q_proj"], "exclude_modules": ["layers.1.self_attn.q_proj"]}, (0, 4)),
        ({"target_modules": "all-linear", "exclude_modules": r".*self_attn.*"}, (6, 7, 8)),
        ({"target_modules": ["q_proj"], "layers_to_transform": 1}, (2,)),
        ({"target_modules": ["q_proj"], "layers_to_transform": [0, 11]}, (0, 4)),
        ({"target_modules": ["q_proj"], "layers_to_transform": []}, (0, 2, 4)),
        # A full name is changed in whatever layer; a name without a number in none.
        ({"target_modules": ["q_proj", Q, "lm_head"], "layers_to_transform": [0]}, (0, 2, 8)),
        # The layer is the first number, not that of an expert.
        ({"target_modules": ["up_proj"], "layers_to_transform": [1]}, (6,)),
        ({"target_modules": ["up_proj"], "layers_to_transform": [0]}, ()),
        (
            {
                "target_modules": ["up_proj"],
                "layers_to_transform": [0],
                "layers_pattern": "experts",
            },
            (6,),
        ),
        (
            {
                "target_modules": ["c_attn", "q_proj"],
                "layers_to_transform": [2],
                "layers_pattern": ["layers", "h"],
            },
            (7,),
        ),
    ],
)
def test_modules_are_selected_as_peft_does(read, settings, selected):
    targets = read(**settings).targets
    assert [targets.selects(name) for name in NAMES] == [n in selected for n in range(len(NAMES))]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"target_modules": None}, "target_modules is not given"),
        ({"target_modules": {"q_proj": 1}}, "target_modules is invalid"),
        ({"target_modules": ["q_proj", 3]}, "target_modules is invalid"),
        ({"target_modules": "(q_proj"}, "an invalid regular expression"),
        ({"target_modules": r"\p{L}+"}, "an invalid regular expression"),
        ({"target_modules": "q" * 30_000}, "regular expression that is too long"),
        ({"exclude_modules": "*"}, "an invalid regular expression"),
        ({"exclude_modules": 1}, "exclude_modules is invalid"),
        ({"layers_to_transform": "1"}, "layers_to_transform is invalid"),
        ({"layers_to_transform": [True]}, "layers_to_transform is invalid"),
        ({"layers_pattern": "layers"}, "layers_pattern is invalid"),
        ({"layers_to_transform": [1], "layers_pattern": "(" * 5_000}, "invalid regular expression"),
        ({"target_modules": ".*", "layers_to_transform": [1]}, "layers_to_transform is invalid"),
        ({"target_modules": ".*", "layers_pattern": "layers"}, "layers_pattern is invalid"),
        ({"rank_pattern": {"q_proj(": 4}}, "an invalid regular expression"),
        ({"rank_pattern": {"q_proj": "4"}}, "rank_pattern"),
        ({"alpha_pattern": ["q_proj"]}, "alpha_pattern is invalid"),
        ({"fan_in_fan_out": "yes"}, "fan_in_fan_out is invalid"),
        ({"use_rslora": 1}, "use_rslora is invalid"),
        ({"bias": "lora_only"}, "bias is not served"),
        ({"use_dora": True}, "use_dora is not served"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save is not served"),
        ({"kasa_config": {"beta": 1}}, "kasa_config is not served"),
        ({"layer_replication": [[0, 4]]}, "layer_replication is not served"),
        ({"something_of_2031": {"size": 4}}, "'something_of_2031' is not known"),
    ],
)
def test_what_says_nothing_that_can_be_served_is_refused(read, settings, words):
    with pytest.raises(FrameworkError, match=words) as error:
        read(**settings)
    assert isinstance(error.value, ModelError | UnsupportedError)
    assert error.value.mend


def test_what_changes_nothing_is_accepted(read):
    """Orientation is of the model's weights, not of an update's; and neutral values of settings
    that are not known."""
    read(
        fan_in_fan_out=True,
        task_type="CAUSAL_LM",
        lora_dropout=0.1,
        peft_version="0.21.2",
        eva_config={"rho": 2.0},
        init_lora_weights="eva",
        something_of_2031=None,
        more_of_it=[],
    )


def test_an_expression_without_an_end_is_given_up(monkeypatch):
    """All of an adapter share one limit, so that many of them take no longer than one."""
    monkeypatch.setattr(patterns, "SECONDS", 0.05)
    endless = r"(?:a|aa)+$b"
    found = Patterns("a file", patterns.SECONDS)
    found.check(endless)
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="takes too long"):
            found.match(endless, "a" * 60)
