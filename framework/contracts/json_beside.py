"""Keywords beside each other, for libraries that read one of them and leave others out without a
word.

Such a library says what it reads: the keywords that lead, in its order, and what it reads beside
each.  Whatever else decides what is valid is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from framework.contracts.json_schema import ASSERTIONS, schemas_in
from framework.errors import InputError, UnsupportedError

Schema = Mapping[Any, Any]
Beside = Mapping[str, frozenset[str]]
COUNTS = ("minItems", "maxItems", "minLength", "maxLength")
_IS: Mapping[str, Callable[[Any], bool]] = {
    "array": lambda value: isinstance(value, list),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and value == int(value),
    "null": lambda value: value is None,
    "number": lambda value: _is_number(value),
    "object": lambda value: isinstance(value, dict),
    "string": lambda value: isinstance(value, str),
}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def types_of(one: Schema) -> list[Any]:
    """Of its keyword `type`."""
    found = one.get("type", [])
    return found if isinstance(found, list) else [found]


def leading(one: Schema, beside: Beside) -> str | None:
    """Of the keywords that lead the first that is there."""
    return next((word for word in beside if word in one), None)


def check_beside(schema: object, beside: Beside) -> None:
    """Of the schema and all that is in it.

    beside: keyword that leads, in the library's order -> those that it reads beside that.

    Raises UnsupportedError for a schema of which something would be left out, or whose `required`
    or `enum` are at odds with what is beside them; InputError for one that has no values.
    """
    for one in schemas_in(schema):
        rule = leading(one, beside)
        read = beside.get(rule, frozenset()) | {rule} if rule else frozenset()
        left = sorted(ASSERTIONS.intersection(one) - read)
        if left:
            raise UnsupportedError(
                f"{left[0]} {f'beside {rule}' if rule else 'alone'} is not supported"
            )
        _check_counts(one)
        _check_names(one)
        _check_values(one)


def _check_counts(one: Schema) -> None:
    for word in COUNTS:
        count = one.get(word, 0)
        if type(count) is not int:
            raise UnsupportedError(f"{word} {count!r:.40} is not supported, but integers are")
        if count < 0:
            raise InputError(f"{word} is {count}, below 0", parameter="structured_outputs")


def _check_names(one: Schema) -> None:
    names = one.get("properties", ())
    strange = [name for name in one.get("required", ()) if name not in names]
    if strange:
        raise UnsupportedError(
            f"{strange[0]!r:.60} is required, and not among the properties: that is not supported"
        )


def _check_values(one: Schema) -> None:
    for word in ("anyOf", "enum", "oneOf", "type"):
        if one.get(word) == []:
            raise InputError(f"{word} is empty", parameter="structured_outputs")
    kinds = types_of(one)
    values = one["enum"] if "enum" in one else [one["const"]] if "const" in one else []
    for value in values if kinds else ():
        if not any(kind in _IS and _IS[kind](value) for kind in kinds):
            raise UnsupportedError(
                f"{value!r:.60} is not of type {one['type']!r:.60}: that is not supported"
            )
