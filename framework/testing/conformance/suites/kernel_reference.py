"""The operators of the contract in numpy, in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
Weights = Mapping[str, F64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """values: the result.  terms: the sum of the magnitudes of what it is the sum of."""

    values: F64
    terms: F64


Reference = Callable[[F64, Weights, Mapping[str, float], frozenset[str], float], Truth]
"""(x, weights, constants and sizes, traits, smallest): weights below `smallest` count as that
large."""


def linear(
    x: F64,
    weights: Weights,
    constants: Mapping[str, float],
    traits: frozenset[str],
    smallest: float,
) -> Truth:
    """x times the weight transposed, plus bias."""
    weight, bias = weights["weight"], weights.get("bias", np.zeros(1))
    floored = np.maximum(np.abs(weight), smallest)
    return Truth(values=x @ weight.T + bias, terms=np.abs(x) @ floored.T + np.abs(bias))


def rms_norm(
    x: F64,
    weights: Weights,
    constants: Mapping[str, float],
    traits: frozenset[str],
    smallest: float,
) -> Truth:
    """x over its root mean square, times weight, or times 1 + weight."""
    scaled = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + constants["eps"])
    weight = weights["weight"]
    more = 1.0 if "offset" in traits else 0.0
    floored = np.maximum(np.abs(weight), smallest)
    return Truth(values=scaled * (more + weight), terms=np.abs(scaled) * (more + floored))


REFERENCES: Mapping[str, Reference] = {"linear": linear, "logits": linear, "rms_norm": rms_norm}
"""By operator, as in `framework.contracts.kernel.OPERATORS`."""
