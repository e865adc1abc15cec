"""What the suite of adapters is made of: names of modules, and updates as numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from framework.testing.conformance.cases import expect

MODULES = (
    *(f"model.layers.{n}.self_attn.{part}" for n in (0, 1, 11) for part in ("q_proj", "v_proj")),
    *(f"model.layers.{n}.mlp.down_proj" for n in (0, 1)),
)
ODD_MODULES = (
    *("lm_head", "model.embed_tokens", "model.norm", "q_proj", "visual.blocks.0.attn.qkv"),
    *("transformer.h.0.attn.c_attn", "encoder.layer.11.attention.self.query", "0", "a.0.0.b"),
    *("model.layers.0.block_sparse_moe.experts.3.w1", "model.layers.0.mlp.gate", "model"),
    *("base_model.model.layers.0.q_proj", "model.layers.1", "model.layers.0.lora_A.x"),
    *("model.layers.0.mlp.down", "model.layers.0.mlp.up", "model.layers.0.a.scale", "a_b-c"),
    *("model.layers.0.q_proj.weight", "model.layers.0.Q_PROJ", "layers.0.\u6a21"),
)
"""Names of modules that a format for one family of models does not expect."""
F32 = npt.NDArray[np.float32]


@dataclasses.dataclass(frozen=True, slots=True)
class Numbers:
    """An update in numpy."""

    down: F32
    up: F32
    scale: float


def with_value(one: Numbers, part: str, value: float) -> Numbers:
    """The same with another last number in a part."""
    changed: F32 = getattr(one, part).copy()
    changed.flat[-1] = value
    parts: Any = {part: changed}
    return dataclasses.replace(one, **parts)


def check_same(expected: Mapping[str, Numbers], found: Mapping[str, Numbers]) -> None:
    """Violation unless the numbers are equal to the bit."""
    expect(
        expected.keys() == found.keys(),
        "other modules are read",
        expected=sorted(expected),
        found=sorted(found),
    )
    for name, one in expected.items():
        for part in ("down", "up"):
            before, after = getattr(one, part), getattr(found[name], part)
            same = before.shape == after.shape and np.array_equal(before, after)
            expect(same, f"{part} of {name} has changed", expected=before.shape, found=after.shape)
        # Files may hold the scale as alpha over the rank.
        close = abs(found[name].scale - one.scale) <= 1e-6 * abs(one.scale)
        expect(close, f"the scale of {name}", expected=one.scale, found=found[name].scale)
