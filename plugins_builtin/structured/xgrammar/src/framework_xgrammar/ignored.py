"""What XGrammar leaves out of a schema without a word."""

from __future__ import annotations

from framework.contracts.json_beside import Beside, Schema, check_beside, types_of
from framework.contracts.json_schema import ASSERTIONS, schemas_in
from framework.errors import InputError, UnsupportedError
from framework_xgrammar.patterns import check_pattern

_OBJECT = frozenset(("additionalProperties", "required"))
_ARRAY = frozenset(("items", "minItems", "maxItems"))
_BESIDE: Beside = {
    "$ref": frozenset(),
    "const": frozenset(("type",)),
    "enum": frozenset(("type",)),
    "anyOf": frozenset(),
    "oneOf": frozenset(),
    "type": ASSERTIONS - {"$ref", "const", "enum", "anyOf", "oneOf"},
    "properties": _OBJECT,
    "additionalProperties": _OBJECT,
    "prefixItems": _ARRAY,
    "items": _ARRAY,
}
_DECIMALS = 6
_EXACT = 1 << 53


def check_read(schema: object) -> None:
    """Raises UnsupportedError for a schema of which something would be left out, InputError for one
    that has no values."""
    check_beside(schema, _BESIDE)
    for one in schemas_in(schema):
        _check_names(one)
        _check_text(one)
        _check_bounds(one)


def _check_names(one: Schema) -> None:
    """Of further names it leaves out those of the properties as they stand, byte by byte: written
    with an escape, or beside another that begins with the same byte, they pass for others."""
    if one.get("properties") and one.get("additionalProperties", False) is not False:
        raise UnsupportedError(
            "additionalProperties beside properties are not supported, but for false"
        )


def _check_text(one: Schema) -> None:
    if "format" in one and {"minLength", "maxLength"} & one.keys():
        raise UnsupportedError("the length of a text beside its format is not supported")
    pattern = one.get("pattern")
    if pattern is None:
        return
    if not isinstance(pattern, str):
        raise InputError(f"the pattern {pattern!r:.60} is no text", parameter="structured_outputs")
    if "format" in one:
        raise UnsupportedError("a pattern beside a format is not supported")
    check_pattern(pattern)


def _check_bounds(one: Schema) -> None:
    """It looks at six digits behind the point, and takes integers as doubles unless all are."""
    for word in ("minimum", "maximum"):
        bound = one.get(word)
        if type(bound) is int and abs(bound) > _EXACT and "number" in types_of(one):
            raise UnsupportedError(
                f"{word} {bound!r:.40} is beyond what a double holds: not supported"
            )
        if isinstance(bound, float) and round(bound, _DECIMALS) != bound:
            raise UnsupportedError(
                f"{word} {bound} has more than {_DECIMALS} decimals: not supported"
            )
