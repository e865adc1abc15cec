"""What a JSON Schema makes use of, by the keywords that decide what is valid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

ONE = frozenset(
    (
        *("additionalItems", "additionalProperties", "contains", "else", "if", "items", "not"),
        *("propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"),
    )
)
"""Keywords whose value is a schema."""
SEVERAL = frozenset(("allOf", "anyOf", "items", "oneOf", "prefixItems"))
"""Keywords whose value is a list of schemas."""
NAMED = frozenset(("dependentSchemas", "patternProperties", "properties"))
"""Keywords whose value holds schemas by name."""
PLAIN = frozenset(
    (
        *("$dynamicRef", "$recursiveRef", "$ref", "const", "dependencies", "dependentRequired"),
        *("enum", "exclusiveMaximum", "exclusiveMinimum", "format", "maxContains", "maxItems"),
        *("maxLength", "maxProperties", "maximum", "minContains", "minItems", "minLength"),
        *("minProperties", "minimum", "multipleOf", "pattern", "required", "type", "uniqueItems"),
    )
)
ASSERTIONS = ONE | SEVERAL | NAMED | PLAIN
"""Keywords that decide what is valid; all others only describe."""


@dataclass(frozen=True, slots=True)
class Used:
    """keywords: assertions that occur; a `$ref` to elsewhere than this document counts as
    "$ref:remote".  formats: values of `format`."""

    keywords: frozenset[str]
    formats: frozenset[str]


def used_by(schema: object) -> Used:
    """What a schema and all that it refers to make use of.

    Definitions that nothing refers to are not looked at, nor is whatever is no schema: a property
    may be called "pattern", and an enum may hold anything.
    """
    keywords: set[str] = set()
    formats: set[str] = set()
    open_, seen = [schema], set[int]()
    while open_:
        one = open_.pop()
        if not isinstance(one, Mapping) or id(one) in seen:
            continue
        seen.add(id(one))
        keywords |= ASSERTIONS.intersection(one)
        if isinstance(one.get("format"), str):
            formats.add(one["format"])
        if isinstance(one.get("$ref"), str):
            found, target = _resolve(schema, one["$ref"])
            if found:
                open_.append(target)
            else:
                keywords.add("$ref:remote")
        open_ += _parts(one)
    return Used(frozenset(keywords), frozenset(formats))


def _parts(schema: Mapping[Any, Any]) -> Iterator[Any]:
    """The schemas inside."""
    for word, value in schema.items():
        if word in SEVERAL and isinstance(value, list):
            yield from value
        elif word in NAMED and isinstance(value, Mapping):
            yield from value.values()
        elif word in ONE:
            yield value


def _resolve(root: object, reference: str) -> tuple[bool, object]:
    """What a reference within the document points to."""
    if not reference.startswith("#"):
        return False, None
    place = root
    for part in unquote(reference[1:]).split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(place, Mapping) and name in place:
            place = place[name]
        elif isinstance(place, list) and name.isdecimal() and int(name) < len(place):
            place = place[int(name)]
        else:
            return False, None
    return True, place
