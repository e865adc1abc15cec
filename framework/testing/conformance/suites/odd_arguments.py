"""What a client may pass to a plugin: anything that JSON holds, and what is nearly right."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

HOSTILE: tuple[Any, ...] = (
    True,
    False,
    0,
    -1,
    -2,
    1 << 70,
    -(1 << 70),
    10**400,
    0.5,
    -0.5,
    1e308,
    float("nan"),
    float("inf"),
    float("-inf"),
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
ODD: tuple[Any, ...] = (
    *(-1, -2, 0, 1 << 70, -(1 << 70), 10**7, 10**400, True, False, None, "", "x", [], {}),
    *(-0.5, 1e-308, 1e308, float("nan"), float("inf"), float("-inf")),
)
ODD_KEYS = ("", "x", "-1", "9999999", "1" * 30)
MOST_VARIATIONS = 120


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
