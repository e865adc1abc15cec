"""A spec of which nothing could be computed is refused where it is made, with what it must be."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import pytest

from framework.contracts.kv_cache_spec import (
    ChunkedLocalSpec,
    CrossAttentionSpec,
    EncoderOnlySpec,
    FullAttentionSpec,
    MambaSpec,
    MLASpec,
    SinkWindowSpec,
    SlidingWindowSpec,
)
from framework.errors import ConfigError

FULL = {"num_kv_heads": 1, "head_size": 2, "head_size_v": 2, "dtype": "float32"}
STATE = {"shapes": ((2, 3), (4,)), "dtypes": ("float32", "float16")}
SINKS = {**FULL, "window": 3, "sinks": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnWindow(SlidingWindowSpec):
    """A class of another author, with a field of its own."""

    depth: int


SPECS = [
    (FullAttentionSpec, FULL, "num_kv_heads", 1),
    (FullAttentionSpec, FULL, "head_size", 1),
    (FullAttentionSpec, FULL, "head_size_v", 0),
    (SlidingWindowSpec, {**FULL, "window": 3}, "window", 1),
    (SinkWindowSpec, SINKS, "window", 1),
    (SinkWindowSpec, SINKS, "sinks", 0),
    (ChunkedLocalSpec, {**FULL, "chunk": 3}, "chunk", 1),
    (CrossAttentionSpec, {**FULL, "encoder_length": 3}, "encoder_length", 1),
    (MLASpec, {"latent_size": 4, "rope_size": 2, "dtype": "float32"}, "latent_size", 1),
    (MLASpec, {"latent_size": 4, "rope_size": 2, "dtype": "float32"}, "rope_size", 0),
    (OwnWindow, {**FULL, "window": 3, "depth": 0}, "window", 1),
    (OwnWindow, {**FULL, "window": 3, "depth": 0}, "head_size", 1),
]


@pytest.mark.parametrize(("cls", "values", "name", "least"), SPECS)
def test_numbers_that_cannot_be_are_refused(cls, values, name, least):
    assert getattr(cls(**{**values, name: least}), name) == least
    for wrong in (least - 1, -7, 2.0, float("nan"), True, None, "3"):
        with pytest.raises(ConfigError, match=f"{name} of a {cls.__name__} cannot be") as refused:
            cls(**{**values, name: wrong})
        assert refused.value.expected == f"an integer >= {least}"
        assert refused.value.found == repr(wrong)


@pytest.mark.parametrize(
    "shapes",
    [(), ((2, 3),), ((2, 3), (4,), (5,)), ((2, 0), (4,)), ((-2, -3), (4,))],
)
def test_a_state_has_a_type_for_each_shape_and_something_in_it(shapes):
    assert MambaSpec(**STATE).state_bytes() == 6 * 4 + 4 * 2
    assert MambaSpec(shapes=((),), dtypes=("float32",)).state_bytes() == 4
    with pytest.raises(ConfigError, match="shapes of a MambaSpec cannot be"):
        MambaSpec(**{**STATE, "shapes": shapes})


def test_a_state_stands_for_some_tokens():
    assert FullAttentionSpec(**FULL, tokens_per_state=2).page_bytes(4) == 2 * 16
    assert EncoderOnlySpec(tokens_per_state=Fraction(1, 2)).page_bytes(4) == 0
    for wrong in (0, Fraction(-1, 2), 0.5, None):
        with pytest.raises(ConfigError, match="tokens_per_state of a MambaSpec cannot"):
            MambaSpec(**STATE, tokens_per_state=wrong)
