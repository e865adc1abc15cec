"""What the clauses for logits processors are made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
import numpy.typing as npt

from framework.contracts.step import I32
from framework.testing.conformance.outcomes import Violation

F32 = npt.NDArray[np.float32]
PROMPT: I32 = np.arange(3, dtype=np.int32)
NOTHING: I32 = np.zeros(0, np.int32)
HOSTILE: tuple[Any, ...] = (
    True,
    0,
    -1,
    1 << 70,
    0.5,
    float("nan"),
    float("inf"),
    "",
    "x" * 1000,
    "\0",
    [],
    [None],
    [-1],
    [1 << 70],
    [True],
    ["5"],
    [[1], [2]],
    list(range(3000)),
    {},
    {"": None},
    {"a": {"b": [1, 2.5, "c"]}},
)
"""What may come over the network as an argument."""
ODD: tuple[Any, ...] = (-1, 1 << 70, 10**7, float("nan"), float("inf"), True, None, "", "x", [], {})
ODD_KEYS = ("", "x", "-1", "9999999", "1" * 30)
MOST_VARIATIONS = 80


def hostile(examples: Any) -> list[Any]:
    """HOSTILE, and the examples with one thing changed: they get past a first look."""
    known = examples if isinstance(examples, tuple) else ()
    each = [list(islice(variations(example), MOST_VARIATIONS)) for example in known[:3]]
    return [*HOSTILE, *chain.from_iterable(each)]


def variations(value: Any) -> Iterator[Any]:
    """The value with one of its parts changed, added or left out."""
    if isinstance(value, dict):
        for key, inner in value.items():
            others = {name: of for name, of in value.items() if name != key}
            yield others
            yield from ({**others, odd: inner} for odd in ODD_KEYS)
            yield from ({**value, key: changed} for changed in variations(inner))
    elif isinstance(value, list | tuple):
        yield [*value, *value]
        for place, inner in enumerate(value):
            before, after = value[:place], value[place + 1 :]
            yield from ([*before, changed, *after] for changed in variations(inner))
    else:
        yield from ODD


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
