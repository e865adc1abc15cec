"""Lengths by name: "512", "uniform:100:900", "lognormal:512:0.8" ..."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from framework.errors import ConfigError

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]
MOST = 2**20
"""Longest prompt or output, in tokens."""


@dataclass(frozen=True, slots=True)
class _Family:
    """parameters: their names.  draw: (generator, parameters, n) -> float64 [n]."""

    parameters: tuple[str, ...]
    draw: Callable[[np.random.Generator, tuple[float, ...], int], F64]


FAMILIES: Mapping[str, _Family] = {
    "fixed": _Family(("TOKENS",), lambda g, p, n: np.full(n, p[0])),
    "uniform": _Family(("LOW", "HIGH"), lambda g, p, n: g.uniform(p[0] - 0.5, p[1] + 0.5, n)),
    "normal": _Family(("MEAN", "DEVIATION"), lambda g, p, n: g.normal(p[0], p[1], n)),
    "lognormal": _Family(
        ("MEDIAN", "SIGMA"), lambda g, p, n: g.lognormal(math.log(max(p[0], 1)), p[1], n)
    ),
    "exponential": _Family(("MEAN",), lambda g, p, n: g.exponential(p[0], n)),
}
EXPECTED = "TOKENS, or one of " + ", ".join(
    ":".join((name, *family.parameters)) for name, family in FAMILIES.items()
)


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution of lengths in tokens, each in [1, MOST]."""

    family: str
    parameters: tuple[float, ...]

    @classmethod
    def parse(cls, text: str, option: str) -> Lengths:
        """Read the text of `option`.  Raises ConfigError."""
        head, *rest = text.strip().split(":")
        name, numbers = (head, rest) if head in FAMILIES else ("fixed", [head, *rest])
        try:
            values = tuple(float(number) for number in numbers)
        except ValueError:
            values = ()
        usable = all(math.isfinite(v) and 0 <= v <= MOST for v in values)
        ordered = name != "uniform" or list(values) == sorted(values)
        if len(values) != len(FAMILIES[name].parameters) or not usable or not ordered:
            raise ConfigError(
                f"{option} is no distribution of lengths",
                expected=f"{EXPECTED}; numbers in [0, {MOST}]",
                found=repr(text),
            )
        return cls(name, values)

    def draw(self, generator: np.random.Generator, count: int) -> I64:
        """int64 [count]."""
        values = FAMILIES[self.family].draw(generator, self.parameters, count)
        return np.clip(np.rint(values), 1, MOST).astype(np.int64)
