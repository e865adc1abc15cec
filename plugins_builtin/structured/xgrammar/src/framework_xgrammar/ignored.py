"""What XGrammar leaves out of a schema without a word."""

from __future__ import annotations

from framework.contracts.json_beside import Beside, Schema, check_beside
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


def check_read(schema: object) -> None:
    """Raises UnsupportedError for a schema of which something would be left out, InputError for one
    that has no values."""
    check_beside(schema, _BESIDE)
    for one in schemas_in(schema):
        _check_text(one)
        _check_bounds(one)


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
    """It looks at six digits behind the point."""
    for word in ("minimum", "maximum"):
        bound = one.get(word)
        if isinstance(bound, float) and round(bound, _DECIMALS) != bound:
            raise UnsupportedError(
                f"{word} {bound} has more than {_DECIMALS} decimals: not supported"
            )
