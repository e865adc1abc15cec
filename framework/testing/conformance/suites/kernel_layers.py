"""The operators around a layer's attention in numpy, in float64.

`terms` of what passes through several stages: each is taken to add an error in proportion to its
own terms, and to pass on what came before as its derivative does, at most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import erf

import numpy as np

from framework.testing.conformance.suites.kernel_reference import (
    F64,
    Floor,
    Reference,
    Truth,
    Weights,
)

STEEPEST = 1.2
"""No activation is steeper."""


def input_sizes(draw: Callable[[], int]) -> dict[str, int]:
    """Of layer_input."""
    kv_heads, half = draw() % 3 + 1, draw()
    heads = kv_heads * (draw() % 3 + 1)
    return {
        "features": draw(),
        "out_features": (heads + 2 * kv_heads) * 2 * half,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_size": 2 * half,
        "half_head": half,
    }


def output_sizes(draw: Callable[[], int]) -> dict[str, int]:
    """Of layer_output."""
    middle = draw()
    return {
        "in_features": draw(),
        "features": draw(),
        "both": 2 * middle,
        "intermediate": middle,
    }


def _linear(x: Truth, weight: F64, bias: F64 | None, floor: Floor) -> Truth:
    more = np.zeros(1) if bias is None else bias
    terms = floor.terms(x.terms, x.values) @ floor.weight(weight).T
    return Truth(values=x.values @ weight.T + more, terms=terms + np.abs(more))


def _norm(x: Truth, weight: F64, eps: float, offset: float) -> Truth:
    """Over the last axis."""
    square = (x.values**2).mean(axis=-1, keepdims=True) + eps
    pull = (np.abs(x.values) * x.terms).mean(axis=-1, keepdims=True) / square
    factor = (offset + weight) / np.sqrt(square)
    values = x.values * factor
    spread = (x.terms + np.abs(x.values) * pull) * (offset + np.abs(weight)) / np.sqrt(square)
    return Truth(values=values, terms=spread + np.abs(values))


def _added(x: Truth, more: Truth) -> Truth:
    return Truth(values=x.values + more.values, terms=x.terms + more.terms)


def layer_input(
    x: F64,
    weights: Weights,
    constants: Mapping[str, float],
    traits: frozenset[str],
    floor: Floor,
) -> Truth:
    """Queries, keys and values of x [T, features], cosines and sines side by side."""
    eps, offset = constants["eps"], float("offset" in traits)
    features, outputs = weights["norm"].size, weights["weight"].shape[0]
    half = (x.shape[-1] - features) // 2
    cosines, sines = x[:, None, features : features + half], x[:, None, features + half :]
    own = x[:, :features]
    normed = _norm(Truth(values=own, terms=np.abs(own)), weights["norm"], eps, offset)
    flat = _linear(normed, weights["weight"], weights.get("bias"), floor)
    shape = (len(x), outputs // (2 * half), 2 * half)
    whole = Truth(values=flat.values.reshape(shape), terms=flat.terms.reshape(shape))
    heads = int(constants["heads"])
    kv_heads = (shape[1] - heads) // 2
    done = []
    for name, first, last in (
        ("q_norm", 0, heads),
        ("k_norm", heads, heads + kv_heads),
    ):
        part = Truth(values=whole.values[:, first:last], terms=whole.terms[:, first:last])
        if name in weights:
            part = _norm(part, weights[name], eps, offset)
        one, two = part.values[..., :half], part.values[..., half:]
        first_terms, second_terms = part.terms[..., :half], part.terms[..., half:]
        turned = (one * cosines - two * sines, two * cosines + one * sines)
        spread = (
            first_terms * np.abs(cosines) + second_terms * np.abs(sines),
            second_terms * np.abs(cosines) + first_terms * np.abs(sines),
        )
        done.append(Truth(values=np.concatenate(turned, -1), terms=np.concatenate(spread, -1)))
    last = heads + kv_heads
    done.append(Truth(values=whole.values[:, last:], terms=whole.terms[:, last:]))
    return Truth(
        values=np.concatenate([part.values for part in done], 1).reshape(len(x), outputs),
        terms=np.concatenate([part.terms for part in done], 1).reshape(len(x), outputs),
    )


def _activated(x: F64, traits: frozenset[str]) -> F64:
    result: F64 = x / (1 + np.exp(-np.clip(x, -700, None)))
    if "relu" in traits:
        result = np.maximum(x, 0)
    if "gelu" in traits:
        result = 0.5 * x * (1 + np.vectorize(erf, otypes=[float])(x / np.sqrt(2)))
    if "gelu_tanh" in traits:
        result = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return result


def layer_output(
    x: F64,
    weights: Weights,
    constants: Mapping[str, float],
    traits: frozenset[str],
    floor: Floor,
) -> Truth:
    """A layer's output from what was attended and its input, side by side."""
    eps, offset = constants["eps"], float("offset" in traits)
    attended, own = np.split(x, [weights["output"].shape[1]], axis=-1)

    def ended(name: str, part: Truth) -> Truth:
        return _norm(part, weights[name], eps, offset) if name in weights else part

    first = _linear(
        Truth(values=attended, terms=np.abs(attended)),
        weights["output"],
        weights.get("output_bias"),
        floor,
    )
    middle = _added(Truth(values=own, terms=np.abs(own)), ended("attention_end_norm", first))
    normed = _norm(middle, weights["norm"], eps, offset)
    both = _linear(normed, weights["gate_up"], weights.get("gate_up_bias"), floor)
    gate, up = np.split(both.values, 2, axis=-1)
    gate_terms, up_terms = np.split(both.terms, 2, axis=-1)
    open_ = _activated(gate, traits)
    spread = STEEPEST * gate_terms * np.abs(up) + np.abs(open_) * up_terms + np.abs(open_ * up)
    last = _linear(
        Truth(values=open_ * up, terms=spread),
        weights["down"],
        weights.get("down_bias"),
        floor,
    )
    return _added(middle, ended("mlp_end_norm", last))


LAYERS: Mapping[str, Reference] = {"layer_input": layer_input, "layer_output": layer_output}
LAYER_SIZES: Mapping[str, Callable[[Callable[[], int]], dict[str, int]]] = {
    "layer_input": input_sizes,
    "layer_output": output_sizes,
}
"""By operator, as in `framework.contracts.kernel.OPERATORS`."""
