"""What llguidance reads of a schema otherwise than JSON Schema means it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from framework.contracts.json_schema import schemas_in
from framework.errors import UnsupportedError

_BOUNDS = frozenset(("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum"))
_MOST = (1 << 63) - 1
_SET = re.compile(r"&&|--|~~|\[")
"""In a class of characters operators and the start of a class to it, characters to JSON Schema."""

_ESCAPES = re.compile(r"\\.", re.DOTALL)
_CLASSES = re.compile(r"\\.|\[\^?((?:\\.|[^\]\\])*)", re.DOTALL)
"""(what stands in a class), or an escape."""


def check_read(schema: object) -> None:
    """Raises UnsupportedError for a schema that the library would read otherwise."""
    for one in schemas_in(schema):
        for word in sorted(_BOUNDS & one.keys()):
            _check_bound(one, word)
        for pattern in _patterns(one):
            _check_classes(pattern)
        _check_count(one)
    _check_gaps(schema)


def _check_gaps(schema: object) -> None:
    """Of a range of numbers that begins behind an integer and ends before the next, counted from
    zero, the library takes that integer in.  Bounds of several schemas may come together: all are
    looked at."""
    lows, highs, without = set(), set(), set()
    for one in schemas_in(schema):
        for word in _BOUNDS & one.keys():
            value = one[word]
            if isinstance(value, int | float):
                (lows if _is_low(word) else highs).add(value)
                if word.startswith("exclusive") and value % 1 == 0:
                    without.add(value)
    for low, high in product(lows, highs):
        if 0 < high - low < 1 and (low if low >= 0 else high) in without:
            raise UnsupportedError(
                f"numbers between {low} and {high}, of which an integer is left out, "
                "are not supported"
            )


def _is_low(word: str) -> bool:
    return word.lower().endswith("minimum")


def _check_bound(one: Mapping[Any, Any], word: str) -> None:
    """It takes bounds as doubles, and those of integers as 64 bits."""
    bound = one[word]
    if not isinstance(bound, int | float):
        return
    try:
        read: float = float(bound)
    except OverflowError:
        read = -math.inf if _is_low(word) else math.inf  # looser than any
    read = min(max(read, -_MOST - 1), _MOST)
    if read < bound if _is_low(word) else read > bound:
        raise UnsupportedError(
            f"{word} {bound!r:.40} does not fit into 64 bits: that is not supported"
        )


def _check_count(one: Mapping[Any, Any]) -> None:
    """It counts a name that comes twice as two properties."""
    least, names = one.get("minProperties"), one.get("required")
    apart = {name for name in names if isinstance(name, str)} if isinstance(names, list) else ()
    if isinstance(least, int) and least > len(apart) + 1:
        raise UnsupportedError(
            f"minProperties {least} with {len(apart)} required names is not supported, as further "
            "names may be the same: name one less at least"
        )


def _patterns(one: Mapping[Any, Any]) -> Iterator[str]:
    named = one.get("patternProperties")
    for pattern in (one.get("pattern"), *(named if isinstance(named, Mapping) else ())):
        if isinstance(pattern, str):
            yield pattern


def _check_classes(pattern: str) -> None:
    """Raises UnsupportedError for classes of characters with something of `_SET` in them."""
    for found in _CLASSES.findall(pattern):
        operator = _SET.search(_ESCAPES.sub("", found))
        if operator:
            raise UnsupportedError(
                f"{operator[0]!r} within [...] in the pattern {pattern!r:.80} is not supported; "
                "with a backslash before each character it is"
            )
