"""What devices can do, by compute capability."""

from __future__ import annotations

from collections.abc import Mapping

Capability = tuple[int, int]

TRITON = (8, 0)
"""What Triton supports (its README); on older devices kernels may compile or not."""
BFLOAT16 = (8, 0)
FLOAT8 = (8, 9)
NEWEST = (12, 0)
"""Whatever any device can do, one of this capability can."""


def dtypes_of(capability: Capability) -> tuple[str, ...]:
    """Element types, best first."""
    if capability >= BFLOAT16:
        return ("bfloat16", "float16", "float32")
    return ("float16", "float32")


def features_of(capability: Capability) -> frozenset[str]:
    """What kernels may make use of."""
    since: Mapping[str, Capability] = {"triton": TRITON, "float8": FLOAT8}
    return frozenset(name for name, least in since.items() if capability >= least)


def ranking_of(kind: str, capability: Capability) -> tuple[str, ...]:
    """Names of candidates, best first."""
    if kind != "attention_backend":
        return ()
    return ("triton", "sdpa") if capability >= TRITON else ("sdpa",)
