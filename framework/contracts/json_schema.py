"""What a JSON Schema makes use of, by the keywords that decide what is valid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
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
    """keywords: assertions that occur.  A reference to elsewhere than this document, or to another
    place than a path from its root, counts as "$ref:remote" beside "$ref"; so do all where a schema
    inside has an `$id`, from which paths in it would count.  One that leads back to where it stands
    counts as "$ref:recursive".
    formats: values of `format` where there may be a text: of other values they say nothing."""

    keywords: frozenset[str]
    formats: frozenset[str]


def used_by(schema: object) -> Used:
    """What a schema and all that it refers to make use of.

    Definitions that nothing refers to are not looked at, nor is whatever is no schema: a property
    may be called "pattern", and an enum may hold anything.
    """
    keywords: set[str] = set()
    formats: set[str] = set()
    seen: set[int] = set()
    rebased = False
    path: dict[int, Iterator[Any]] = {0: iter((schema,))}  # what is open, outermost first
    while path:
        one = next(path[next(reversed(path))], None)
        if one is None:
            path.popitem()
        elif id(one) in path:
            keywords.add("$ref:recursive")
        elif isinstance(one, Mapping) and id(one) not in seen:
            seen.add(id(one))
            keywords |= ASSERTIONS.intersection(one)
            if isinstance(one.get("format"), str) and _may_be_text(one):
                formats.add(one["format"])
            found, target = _resolve(schema, one.get("$ref"))
            rebased = rebased or (one is not schema and _has_place(one))
            if not found:
                keywords.add("$ref:remote")
            path[id(one)] = chain(_parts(one), () if target is None else (target,))
    if rebased and "$ref" in keywords:
        keywords.add("$ref:remote")
    return Used(frozenset(keywords), frozenset(formats))


def schemas_in(schema: object) -> Iterator[Mapping[Any, Any]]:
    """The schema and all that it holds or refers to, each once; True and False are left out."""
    seen: set[int] = set()
    inside = [schema]
    while inside:
        one = inside.pop()
        if isinstance(one, Mapping) and id(one) not in seen:
            seen.add(id(one))
            yield one
            inside += _parts(one)
            inside.append(_resolve(schema, one.get("$ref"))[1])


def _may_be_text(schema: Mapping[Any, Any]) -> bool:
    kinds = schema.get("type", "string")
    return kinds == "string" or (isinstance(kinds, list) and "string" in kinds)


def _has_place(schema: Mapping[Any, Any]) -> bool:
    """Whether it is a document of its own: an `$id` that is a fragment only names it."""
    place = schema.get("$id")
    return isinstance(place, str) and not place.startswith("#")


def _parts(schema: Mapping[Any, Any]) -> Iterator[Any]:
    """The schemas inside."""
    for word, value in schema.items():
        if word in SEVERAL and isinstance(value, list):
            yield from (one for one in value if one is not None)
        elif word in NAMED and isinstance(value, Mapping):
            yield from (one for one in value.values() if one is not None)
        elif word in ONE and value is not None:
            yield value


def _resolve(root: object, reference: object) -> tuple[bool, object]:
    """(whether it is within the document, what it points to); without a reference, nothing."""
    if not isinstance(reference, str):
        return True, None
    if reference != "#" and not reference.startswith("#/"):
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
