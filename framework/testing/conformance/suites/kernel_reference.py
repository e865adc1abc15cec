"""The operators of the contract in numpy, in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from framework.contracts.kernel import KernelSupported

F64 = npt.NDArray[np.float64]
Weights = Mapping[str, F64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """values: the result.  terms: the sum of the magnitudes of what it is the sum of."""

    values: F64
    terms: F64


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """As which size smaller numbers count, see `framework.contracts.kernel.KernelSupported`."""

    smallest: float
    share: float

    def weight(self, weight: F64) -> F64:
        """Magnitudes of weights, the last axis being that of inputs."""
        floored: F64 = np.maximum(self.terms(np.abs(weight), weight), self.smallest)
        return floored

    def terms(self, terms: F64, values: F64) -> F64:
        """Those of numbers whose rows are the last axis."""
        largest: F64 = np.abs(values).max(axis=-1, keepdims=True, initial=0)
        floored: F64 = np.maximum(terms, self.share * largest)
        return floored


def floor_of(answer: KernelSupported) -> Floor:
    """What an answer promises."""
    return Floor(smallest=answer.smallest, share=answer.share)


Reference = Callable[[F64, Weights, Mapping[str, float], frozenset[str], Floor], Truth]
"""(x, weights, constants and sizes, traits, floor)."""


def linear(
    x: F64,
    weights: Weights,
    constants: Mapping[str, float],
    traits: frozenset[str],
    floor: Floor,
) -> Truth:
    """x times the weight transposed, plus bias."""
    weight, bias = weights["weight"], weights.get("bias", np.zeros(1))
    terms = floor.terms(np.abs(x), x) @ floor.weight(weight).T
    return Truth(values=x @ weight.T + bias, terms=terms + np.abs(bias))


def rms_norm(
    x: F64,
    weights: Weights,
    constants: Mapping[str, float],
    traits: frozenset[str],
    floor: Floor,
) -> Truth:
    """x over its root mean square, times weight, or times 1 + weight."""
    scaled = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + constants["eps"])
    weight = weights["weight"]
    more = 1.0 if "offset" in traits else 0.0
    floored = np.maximum(np.abs(weight), floor.smallest)
    return Truth(values=scaled * (more + weight), terms=np.abs(scaled) * (more + floored))


REFERENCES: Mapping[str, Reference] = {"linear": linear, "logits": linear, "rms_norm": rms_norm}
"""By operator, as in `framework.contracts.kernel.OPERATORS`."""
