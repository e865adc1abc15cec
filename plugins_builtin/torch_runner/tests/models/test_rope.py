"""Frequencies of every rotary variant equal Transformers', also for numbers that no model has."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from framework_torch.models.rope import inverse_frequencies, read_rope

HEAD = 16
LONGEST = 256
CASES = [
    ("linear", {"factor": 3.0}),
    *(
        ("llama3", {"factor": 8.0, "low_freq_factor": low, "high_freq_factor": high})
        for low, high in ((1.0, 4.0), (0.1, 0.2), (30.0, 60.0))
    ),
    *(
        ("yarn", {"factor": factor, **turns})
        for factor in (1.0, 4.0, 40.0)
        for turns in ({}, {"beta_fast": 1e-3, "beta_slow": 1e-6}, {"beta_fast": 9e9})
    ),
]


@pytest.mark.parametrize("theta", [3.0, 500.0, 1e6])
@pytest.mark.parametrize(("variant", "values"), CASES)
def test_frequencies_and_magnitude_equal_transformers(variant, values, theta) -> None:
    own = {"rope_type": variant, "rope_theta": theta, **values}
    if variant != "linear":
        own["original_max_position_embeddings"] = 64
    config = LlamaConfig(head_dim=HEAD, max_position_embeddings=LONGEST, rope_parameters=own)
    expected, magnitude = ROPE_INIT_FUNCTIONS[variant](config, "cpu")
    rope = read_rope({"rope_parameters": own}, LONGEST)
    found, factor = inverse_frequencies(rope, HEAD)
    assert torch.allclose(found, expected, rtol=1e-6, atol=0)
    assert factor == pytest.approx(magnitude, rel=1e-9)
