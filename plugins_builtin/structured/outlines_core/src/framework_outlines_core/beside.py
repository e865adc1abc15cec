"""Keywords beside each other of which the library leaves some out without a word.

It reads one keyword of a schema, the first of these that stands in it, and of the others only those
that belong to that one:

    properties   required, of properties that are named
    anyOf, $ref  nothing
    prefixItems  nothing: an array is all of them and no more
    enum, const  nothing: a value may be of another type
    type         items, minItems, maxItems; additionalProperties; minLength and maxLength, or format
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from framework.contracts.json_schema import ASSERTIONS, schemas_in
from framework.errors import InputError, UnsupportedError

Schema = Mapping[str, Any]
_OF_TYPES = ("items", "minItems", "maxItems", "minLength", "maxLength", "format")
_BESIDE: Mapping[str, frozenset[str]] = {
    "properties": frozenset(("type", "required", "additionalProperties")),
    "anyOf": frozenset(),
    "prefixItems": frozenset(("type", "items", "minItems", "maxItems")),
    "enum": frozenset(("type",)),
    "const": frozenset(("type",)),
    "$ref": frozenset(),
    "type": frozenset((*_OF_TYPES, "additionalProperties", "required")),
}
_COUNTS = ("minItems", "maxItems", "minLength", "maxLength")
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


def check_beside(schema: object) -> None:
    """Raises UnsupportedError for a schema of which something would be left out, InputError for one
    that has no values."""
    for one in schemas_in(schema):
        rule = next((word for word in _BESIDE if word in one), None)
        if rule is None:
            continue  # what there is else, the library refuses
        left = sorted(ASSERTIONS.intersection(one) - _BESIDE[rule] - {rule})
        if left:
            raise UnsupportedError(f"{left[0]} beside {rule} is not supported")
        _check_counts(one)
        _CHECKS.get(rule, _check_type)(one)


def _check_counts(one: Schema) -> None:
    for word in _COUNTS:
        if type(one.get(word, 0)) is not int:
            raise UnsupportedError(f"{word} {one[word]!r:.40} is not supported, but integers are")


def _types(one: Schema) -> list[Any]:
    found = one.get("type", [])
    return found if isinstance(found, list) else [found]


def _check_properties(one: Schema) -> None:
    _must_be("object", one)
    names = one["properties"]
    strange = [name for name in one.get("required", ()) if name not in names]
    if strange:
        raise UnsupportedError(f"{strange[0]!r:.60} is required, and not among the properties")


def _check_prefix(one: Schema) -> None:
    _must_be("array", one)
    count = len(one["prefixItems"])
    if not one.get("minItems", 0) <= count <= one.get("maxItems", count) or not count:
        raise UnsupportedError("an array of another length than prefixItems is not supported")


def _must_be(kind: str, one: Schema) -> None:
    if "type" in one and kind not in _types(one):
        raise UnsupportedError(f"only type {kind} is supported there, not {one['type']!r:.60}")


def _check_values(one: Schema) -> None:
    values = one["enum"] if "enum" in one else [one["const"]]
    if not values:
        raise InputError("enum has no values", parameter="structured_outputs")
    kinds = _types(one)
    for value in values if kinds else ():
        if not any(kind in _IS and _IS[kind](value) for kind in kinds):
            raise UnsupportedError(f"{value!r:.60} is not of type {one['type']!r:.60}")


def _check_any(one: Schema) -> None:
    if not one["anyOf"]:
        raise InputError("anyOf is empty", parameter="structured_outputs")


def _check_type(one: Schema) -> None:
    if "type" in one and not _types(one):
        raise InputError("type is empty", parameter="structured_outputs")
    if "format" in one and {"minLength", "maxLength"} & one.keys():
        raise UnsupportedError("the length of a text beside its format is not supported")
    if one.get("required"):
        raise UnsupportedError("required without properties is not supported")


_CHECKS: Mapping[str, Callable[[Schema], None]] = {
    "properties": _check_properties,
    "anyOf": _check_any,
    "prefixItems": _check_prefix,
    "enum": _check_values,
    "const": _check_values,
}
