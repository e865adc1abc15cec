"""What outlines-core reads of a schema: one keyword, the first of these that stands in it, and
beside it only what belongs to that one."""

from __future__ import annotations

from framework.contracts.json_beside import Beside, Schema, check_beside, leading, types_of
from framework.contracts.json_schema import schemas_in
from framework.errors import UnsupportedError

_OF_TYPES = ("items", "minItems", "maxItems", "minLength", "maxLength", "format")
_BESIDE: Beside = {
    "properties": frozenset(("type", "required", "additionalProperties")),
    "anyOf": frozenset(),
    "prefixItems": frozenset(("type", "items", "minItems", "maxItems")),
    "enum": frozenset(("type",)),
    "const": frozenset(("type",)),
    "$ref": frozenset(),
    "type": frozenset((*_OF_TYPES, "additionalProperties", "required")),
}


def check_read(schema: object) -> None:
    """Raises UnsupportedError for a schema of which something would be left out, InputError for one
    that has no values."""
    check_beside(schema, _BESIDE)
    for one in schemas_in(schema):
        rule = leading(one, _BESIDE)
        if rule == "properties":
            _must_be("object", one)
        elif rule == "prefixItems":
            _must_be("array", one)
            _check_prefix(one)
        elif "format" in one and {"minLength", "maxLength"} & one.keys():
            raise UnsupportedError("the length of a text beside its format is not supported")


def _must_be(kind: str, one: Schema) -> None:
    if "type" in one and kind not in types_of(one):
        raise UnsupportedError(f"only type {kind} is supported there, not {one['type']!r:.60}")


def _check_prefix(one: Schema) -> None:
    """It writes all of them and no more."""
    count = len(one["prefixItems"])
    if not one.get("minItems", 0) <= count <= one.get("maxItems", count) or not count:
        raise UnsupportedError("an array of another length than prefixItems is not supported")
