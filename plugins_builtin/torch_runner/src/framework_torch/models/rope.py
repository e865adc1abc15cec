"""Rotary position embedding: which variant a configuration asks for, and its frequencies.

Sources: RoFormer (Su et al. 2021) for the rotation; "linear" is position interpolation (Chen
et al. 2023); "llama3" is the frequency scaling of Llama 3.1's reference code; "yarn" is Peng
et al. 2023, sections 3.2 to 3.4.  "dynamic" (NTK-aware) equals the default up to the trained
length and beyond it changes frequencies with the length of the batch, which a cache of
rotated keys cannot follow: it is served up to the trained length only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# Positions are exact in float32 up to here.
LONGEST = 2**24
DEFAULT_THETA = 10_000.0
ORIGINAL = "original_max_position_embeddings"
VARIANTS = ("default", "linear", "dynamic", "llama3", "yarn")
_NEEDS: Mapping[str, tuple[str, ...]] = {
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
}
_YARN_NUMBERS = (
    "factor",
    "attention_factor",
    "beta_fast",
    "beta_slow",
    "mscale",
    "mscale_all_dim",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """variant: one of VARIANTS.  trained: positions seen before scaling.  extended: after it.
    values: the variant's own numbers."""

    variant: str
    theta: float
    trained: int
    extended: int
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def longest(self) -> int:
        """Longest sequence for which the frequencies hold."""
        return self.extended


class RopeError(ValueError):
    """field, found, needed: of the rejection to be made from it.  fault: no definition could
    make sense of it."""

    def __init__(self, field: str, found: object, needed: object, *, fault: bool = False) -> None:
        super().__init__(f"{field}={found!r}, needs {needed}")
        self.field, self.found, self.needed, self.fault = field, found, needed, fault


def read_rope(config: Mapping[str, Any], longest: int) -> Rope:
    """Read `rope_parameters` (Transformers 5) or `rope_theta` with `rope_scaling` (before).

    Raises RopeError for a variant or a value that is not known here.
    """
    key = "rope_parameters" if config.get("rope_parameters") else "rope_scaling"
    if key == "rope_parameters" and config.get("rope_scaling"):
        # As when somebody adds an old form to a new file; which of the two counts is a guess.
        raise RopeError("rope_scaling", config["rope_scaling"], "nothing beside rope_parameters")
    given = config.get(key) or {}
    if not isinstance(given, Mapping):
        raise RopeError(key, given, "a mapping", fault=True)
    if any(isinstance(v, Mapping) for v in given.values()):
        raise RopeError(key, given, "one mapping for all layers")
    variant = given.get("rope_type", given.get("type", "default"))
    if variant not in VARIANTS:
        raise RopeError(f"{key}.rope_type", variant, f"one of {', '.join(VARIANTS)}")
    theta = given.get("rope_theta", config.get("rope_theta"))
    theta = DEFAULT_THETA if theta is None else theta
    partial = given.get("partial_rotary_factor", config.get("partial_rotary_factor"))
    if partial is not None:
        _positive("partial_rotary_factor", partial)
    if partial not in (None, 1, 1.0):
        raise RopeError("partial_rotary_factor", partial, 1.0)
    trained = config.get(ORIGINAL, given.get(ORIGINAL, longest))
    values = {**given, "rope_theta": theta, ORIGINAL: trained}
    required = ("rope_theta", ORIGINAL, *_NEEDS.get(variant, ()))
    for name in required:
        _positive(f"{key}.{name}", values.get(name))
    if variant == "yarn":
        if values.get("factor") is None:
            values["factor"] = longest / trained
        for name in _YARN_NUMBERS:
            if values.get(name) is not None:
                _positive(f"{key}.{name}", values[name])
        if theta <= 1:
            raise RopeError(f"{key}.rope_theta", theta, "a number > 1", fault=True)
        # Many switch YaRN on by these numbers alone, as pages of models say, and leave
        # max_position_embeddings as it was.
        longest = max(longest, min(LONGEST, int(trained * values["factor"])))
    return Rope(
        variant=variant, theta=float(theta), trained=trained, extended=longest, values=values
    )


def _positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise RopeError(name, value, "a finite number > 0", fault=True)


def inverse_frequencies(rope: Rope, head_size: int) -> tuple[torch.Tensor, float]:
    """(radians per position, float32 [head_size / 2]; factor on sine and cosine)."""
    import torch

    exponents = torch.arange(0, head_size, 2, dtype=torch.float32) / head_size
    plain = 1.0 / rope.theta**exponents
    return _SCALINGS[rope.variant](rope, plain, head_size)


def _default(rope: Rope, plain: torch.Tensor, head_size: int) -> tuple[torch.Tensor, float]:
    return plain, 1.0


def _linear(rope: Rope, plain: torch.Tensor, head_size: int) -> tuple[torch.Tensor, float]:
    return plain / rope.values["factor"], 1.0


def _llama3(rope: Rope, plain: torch.Tensor, head_size: int) -> tuple[torch.Tensor, float]:
    """Waves that fit often into the trained length stay, long ones are stretched by the
    factor, and between the two limits the frequency is mixed."""
    factor = rope.values["factor"]
    low, high = rope.values["low_freq_factor"], rope.values["high_freq_factor"]
    turns = rope.trained * plain / (2 * math.pi)
    # Equal limits leave no band in between: a step at that limit.
    keep = ((turns - low) / (high - low)).clamp(0, 1) if high != low else (turns >= low).float()
    return plain * (keep + (1 - keep) / factor), 1.0


def _yarn(rope: Rope, plain: torch.Tensor, head_size: int) -> tuple[torch.Tensor, float]:
    """Dimensions that turn more than beta_fast times stay, those under beta_slow turns are
    stretched, with a linear ramp over the dimensions in between."""
    import torch

    values, factor = rope.values, rope.values["factor"]

    def dimension(turns: float) -> float:
        wave = rope.trained / (turns * 2 * math.pi)
        return head_size * math.log(wave) / (2 * math.log(rope.theta))

    low = dimension(values.get("beta_fast") or 32)
    high = dimension(values.get("beta_slow") or 1)
    if values.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_size - 1)
    width = high - low or 0.001
    stretch = ((torch.arange(head_size // 2, dtype=torch.float32) - low) / width).clamp(0, 1)
    return plain * (1 - stretch) + plain / factor * stretch, _yarn_magnitude(values, factor)


def _yarn_magnitude(values: Mapping[str, Any], factor: float) -> float:
    if values.get("attention_factor") is not None:
        return float(values["attention_factor"])

    def magnitude(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    first, second = values.get("mscale"), values.get("mscale_all_dim")
    return magnitude(first) / magnitude(second) if first and second else magnitude(1.0)


_SCALINGS: Mapping[str, Callable[..., tuple[torch.Tensor, float]]] = {
    "default": _default,
    "dynamic": _default,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
}
