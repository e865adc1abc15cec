"""Each keyword counts, alone and beside others, and a test that did not see it would be noticed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from framework.contracts.json_schema import schemas_in, used_by
from framework.contracts.structures import grammar_of
from framework.errors import InputError, UnsupportedError
from tests.structured.schemas import schemas
from tests.structured.test_schemas import INSTALLED, against, some_of
from tests.structured.walks import backend, compiled, values

INTEGER = {"type": "integer"}
AB = {"enum": ["a", "b", "abc"]}
ROWS = {"type": "array", "items": INTEGER}
OPEN = {"type": "object", "properties": {"a": INTEGER}}
ESCAPED = (
    *(
        '^"$',
        '^["]$',
        "^\\\\$",
        "^[\\\\]$",
        "^\\x22$",
        "^\\u005c$",
        "^\\n$",
        "^\n$",
        "^\\t$",
        "^\t$",
    ),
    *("^\\cA$", "^[\\b]$", "^\\0$", "^\\x07$", "^\\u0007$", '^a\\"$'),
)
"""Of characters that JSON writes with a backslash."""
REPEATED = ("^(ab+)?c$", "^(a+b)?$", "^x(a(bc{1,2})?)??y$", "^((a|b)c+|d)?$", "^[)?](a*b)?$")

BESIDE: list[Any] = [
    {"type": "integer", "enum": ["a", 1]},
    {"type": ["string", "null"], "enum": ["a", None, 5]},
    {"type": "string", "const": 5},
    {**AB, "maxLength": 2},
    {"const": "abc", "maxLength": 2},
    {"const": 1, "enum": [2]},
    {"enum": []},
    {"type": []},
    {"anyOf": []},
    {"type": "string", "format": "date", "maxLength": 4},
    {"type": "string", "minLength": 3, "maxLength": 2},
    {"type": "string", "maxLength": 1.0},
    {**ROWS, "minItems": 3, "maxItems": 2},
    {**ROWS, "minItems": 2.0},
    {**OPEN, "required": ["b"]},
    {**OPEN, "required": ["b"], "additionalProperties": False},
    {"type": "object", "required": ["b"], "additionalProperties": INTEGER},
    {**OPEN, "type": "string"},
    {**OPEN, "anyOf": [{"required": ["a"]}]},
    {"type": "object", "additionalProperties": {"enum": []}},
    {"anyOf": [AB, INTEGER], "type": "integer"},
    {"anyOf": [AB, INTEGER], "maxLength": 2},
    {"type": "array", "prefixItems": [INTEGER], "items": AB, "minItems": 3},
    {"type": "array", "prefixItems": [INTEGER, INTEGER], "maxItems": 1},
    {"type": "array", "prefixItems": [INTEGER], "items": False, "minItems": 2},
    {"type": "string", "prefixItems": [INTEGER]},
    {"$ref": "#/$defs/a", "maxLength": 2, "$defs": {"a": AB}},
    {"$ref": "#/$defs/a", "type": "integer", "$defs": {"a": AB}},
    {"$ref": "#/$defs/a/b", "$defs": {"a": {"b": {**ROWS, "minItems": 1, "enum": [[], [1]]}}}},
    {**OPEN, "required": ["c"], "properties": {"c": {"type": "string", "enum": [1, "x"]}}},
    {"type": "number", "exclusiveMinimum": 1, "exclusiveMaximum": 1.5},
    {"type": "number", "exclusiveMinimum": -0.5, "exclusiveMaximum": 0},
    {"allOf": [{"type": "number", "exclusiveMinimum": 10}, {"maximum": 10.5}]},
    {"type": "number", "minimum": 1e-7, "maximum": 2e-7},
    *({word: 3} for word in ("minimum", "maxLength", "minLength")),
    {"required": ["a"]},
    {"pattern": "^a$"},
    {"format": "uuid"},
    {"type": "string", "format": "uuid", "pattern": "^a"},
    {"type": "string", "format": "date", "pattern": "^2"},
    {"type": "string", "format": "email", "allOf": [{"maxLength": 6}]},
    *({"type": "string", "pattern": pattern} for pattern in (*ESCAPED, *REPEATED)),
]
BROKEN: list[Any] = [
    {"type": "string", "minLength": -1},
    {**ROWS, "maxItems": -1},
    {"type": "object", "additionalProperties": {**ROWS, "minItems": -3}},
]


def faults(schema: Any, found: Any) -> list[str]:
    return [f"{schema} does not take {found!r}: {why}" for why in against(schema, found)]


@pytest.mark.parametrize("name", INSTALLED)
def test_keywords_beside_each_other_are_kept_or_refused(name):
    own = backend(name)
    flaws = []
    for schema in BESIDE:
        try:
            grammar = compiled(own, schema)
        except (InputError, UnsupportedError):
            continue
        flaws += [fault for value in values(grammar, 20) for fault in faults(schema, value)]
    assert not flaws, "\n".join(flaws)


@pytest.mark.parametrize("name", INSTALLED)
def test_counts_below_zero_are_refused_by_the_check(name):
    for schema in BROKEN:
        with pytest.raises((InputError, UnsupportedError)):
            backend(name).check(grammar_of({"json": schema}))


GOOD: list[Any] = [
    {**AB, "type": "string"},
    {"type": ["integer", "null"], "enum": [1, 2.0, None]},
    {"type": "string", "const": "abc"},
    {**OPEN, "required": ["a"], "additionalProperties": False},
    {"type": "array", "prefixItems": [INTEGER, AB], "items": False, "minItems": 2},
    {**ROWS, "minItems": 1, "maxItems": 2},
    {"$ref": "#/$defs/a", "description": "x", "$defs": {"a": AB}},
    {**OPEN, "properties": {"type": AB, "enum": INTEGER, "required": AB}, "required": ["type"]},
    {"type": "object", "additionalProperties": {"type": "string", "maxLength": 3}},
]


@pytest.mark.parametrize("name", INSTALLED)
def test_and_what_contradicts_nothing_is_served(name):
    own = backend(name)
    for schema in GOOD:
        found = list(values(compiled(own, schema), 10))
        assert found
        assert not [fault for value in found for fault in faults(schema, value)]


NARROW = {"additionalItems", "patternProperties"}
"""The first means nothing beside `prefixItems`; without the second fewer outputs come."""


def without(schema: Any, keyword: str, form: str | None = None) -> Any:
    """As a backend sees it that ignores this keyword, or this form of `format`."""
    copy = json.loads(json.dumps(schema))
    for one in list(schemas_in(copy)):
        if form is None or one.get(keyword) == form:
            one.pop(keyword, None)
    return copy


def test_schemas_of_the_quick_test_would_show_a_keyword_or_a_format_that_is_ignored():
    """Without it, outputs come that the schema does not take."""
    own, chosen = backend("llguidance"), some_of(schemas())
    covered = own.coverage
    unseen = []
    for keyword, form in [
        *((keyword, None) for keyword in sorted(covered.keywords - NARROW) if ":" not in keyword),
        *(("format", form) for form in sorted(covered.formats)),
    ]:
        seen = False
        for schema in chosen:
            uses = used_by(schema)
            if seen or not (form in uses.formats if form else keyword in uses.keywords):
                continue
            try:
                compiled(own, schema)
                grammar = compiled(own, without(schema, keyword, form))
            except (InputError, UnsupportedError):
                continue
            seen = any(faults(schema, value) for value in values(grammar, 12))
        if not seen:
            unseen.append((keyword, form))
    assert unseen == []
