"""What XGrammar would leave out is refused, with a reason.  The library is not needed for that."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

from framework.errors import InputError, UnsupportedError

PLACE = Path(__file__).resolve().parents[1] / "src"
INTEGER = {"type": "integer"}
OPEN = {"type": "object", "properties": {"a": INTEGER}}


@pytest.fixture
def module(monkeypatch):
    """From this tree: the package is not in the environment of development."""
    monkeypatch.syspath_prepend(PLACE)
    before = set(sys.modules)
    yield lambda name: import_module(f"framework_xgrammar.{name}")
    for name in {name for name in sys.modules if name.startswith("framework_xgrammar")} - before:
        del sys.modules[name]


@pytest.fixture
def check_read(module):
    return module("ignored").check_read


REFUSED = [
    ({"$ref": "#/$defs/a", "maxLength": 2, "$defs": {"a": INTEGER}}, "maxLength beside [$]ref"),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"const": 1, "minimum": 2}}}, "minimum beside const"),
    ({"enum": ["abc"], "maxLength": 2}, "maxLength beside enum"),
    ({"const": 1, "enum": [2]}, "enum beside const"),
    ({"anyOf": [INTEGER], "properties": {"a": INTEGER}}, "properties beside anyOf"),
    ({"oneOf": [INTEGER], "type": "integer"}, "type beside oneOf"),
    ({"type": "integer", "enum": ["a", 1]}, "'a' is not of type"),
    ({"type": "string", "const": 5}, "5 is not of type"),
    ({"minimum": 3}, "minimum alone"),
    ({"type": "array", "items": {"required": ["a"]}}, "required alone"),
    ({**OPEN, "required": ["b"]}, "'b' is required"),
    ({"type": "object", "required": ["b"]}, "'b' is required"),
    ({"type": "string", "minLength": 1.0}, "minLength 1.0"),
    ({"type": "string", "format": "uuid", "pattern": "^a"}, "pattern beside a format"),
    (
        {"type": "string", "format": "date", "maxLength": 9},
        "the length of a text beside its format",
    ),
    ({"type": "number", "minimum": 1e-7}, "decimals"),
    *(
        ({"type": "string", "pattern": pattern}, "JSON writes with a backslash")
        for pattern in (
            *('a"', "\\\\", '[^"]', "\\x22", "\\u0022", "\\u{5C}", "\\x5c", "\\n", "\t", "\\t"),
            *("\\cA", "[\\b]", "\\0", "\\x1f"),
        )
    ),
]


@pytest.mark.parametrize(("schema", "why"), REFUSED)
def test_what_would_be_left_out_is_refused(check_read, schema, why):
    with pytest.raises(UnsupportedError, match=why):
        check_read(schema)


@pytest.mark.parametrize(
    "schema",
    [{"anyOf": []}, {"enum": []}, {"type": []}, {"type": "string", "minLength": -1}],
)
def test_what_has_no_values_is_an_error(check_read, schema):
    with pytest.raises(InputError):
        check_read(schema)


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"$ref": "#/$defs/a", "title": "x", "$defs": {"a": INTEGER}},
        {"type": ["string", "null"], "maxLength": 3},
        {**OPEN, "required": ["a"], "additionalProperties": False},
        {"properties": {"a": INTEGER, "enum": INTEGER}, "required": ["a"]},
        {"type": "array", "prefixItems": [INTEGER], "items": False, "minItems": 1},
        {"items": INTEGER, "maxItems": 2},
        {"enum": [{"minimum": 3, "required": ["x"]}]},
        {"type": "number", "minimum": 0.5, "maximum": 1e20},
        {"type": "string", "pattern": "^\\d{2}\\.\\$\\-[a-z\\]]\\/\\u00e9\\x41\\w$"},
    ],
)
def test_what_it_reads_is_taken(check_read, schema):
    check_read(schema)


@pytest.mark.parametrize(
    ("pattern", "written"),
    [
        ("^(ab+)?c$", "^(ab+){0,1}c$"),
        ("(a(b+)?)??", "(a(b+){0,1}){0,1}"),
        ("a?[)?]?\\\\)?[^])?]x", "a?[)?]?\\\\){0,1}[^])?]x"),
        ("\\)?(a)*?(b)+?", "\\)?(a)*?(b)+?"),
    ],
)
def test_groups_that_may_be_left_out_are_counted(module, pattern, written):
    schema = {"type": "array", "items": {"pattern": pattern}}
    assert module("patterns").rewritten(schema)["items"]["pattern"] == written
