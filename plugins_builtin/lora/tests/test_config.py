"""How large an update counts, by PEFT's settings."""

import json
import math

import pytest

from framework_lora.config import NAME, read_config

Q = "model.layers.1.self_attn.q_proj"
K = "model.layers.1.self_attn.k_proj"


@pytest.fixture
def read(tmp_path):
    def one(**settings):
        (tmp_path / NAME).write_text(json.dumps({"peft_type": "LORA", **settings}))
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
