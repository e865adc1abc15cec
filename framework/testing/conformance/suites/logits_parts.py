"""What the clauses for logits processors are made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from framework.contracts.step import I32
from framework.testing.conformance.outcomes import Violation

F32 = npt.NDArray[np.float32]
PROMPT: I32 = np.arange(3, dtype=np.int32)
NOTHING: I32 = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One row of a call: whose it is, its logits, what has been generated."""

    slot: int
    logits: F32
    output: I32


def check_same(found: F32, expected: F32, what: str) -> None:
    """Violation unless the bits are equal."""
    equal = np.array_equal(found.view(np.uint32), expected.view(np.uint32))
    if not equal:
        wrong = np.flatnonzero(found != expected)
        raise Violation(
            f"{what} differs at {len(wrong)} tokens, the first {wrong[:5]}\n"
            f"  expected: {expected[wrong[:5]]}\n  found:    {found[wrong[:5]]}"
        )
