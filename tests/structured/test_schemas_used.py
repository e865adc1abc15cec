"""What a schema makes use of is found, wherever it stands and whatever looks like it."""

from __future__ import annotations

import pytest

from framework.contracts.json_schema import used_by

CASES = [
    ({"type": "string", "title": "x", "x-mine": 1}, {"type"}, set()),
    (True, set(), set()),
    ({"properties": {"pattern": {"minLength": 1}}}, {"properties", "minLength"}, set()),
    ({"enum": [{"pattern": 1}], "default": {"not": 1}}, {"enum"}, set()),
    ({"format": "date", "items": {"format": "uuid"}}, {"format", "items"}, {"date", "uuid"}),
    ({"items": [{"type": "null"}, {"const": 1}]}, {"items", "type", "const"}, set()),
    ({"$defs": {"a": {"not": {}}}, "type": "null"}, {"type"}, set()),
    ({"$defs": {"a/b": {"not": {}}}, "$ref": "#/$defs/a~1b"}, {"$ref", "not"}, set()),
    ({"$ref": "https://elsewhere"}, {"$ref", "$ref:remote"}, set()),
    ({"$ref": "#/$defs/gone"}, {"$ref", "$ref:remote"}, set()),
    ({"$ref": "#a", "$defs": {"x": {"$anchor": "a", "not": {}}}}, {"$ref", "$ref:remote"}, set()),
    (
        {"items": {"$id": "b", "$ref": "#/$defs/a", "$defs": {"a": {"not": 1}}}, "$defs": {"a": 0}},
        {"items", "$ref", "$ref:remote"},
        set(),
    ),
    (
        {"$id": "https://a/b", "$ref": "#/$defs/a", "$defs": {"a": {"$id": "#c", "type": "null"}}},
        {"$ref", "type"},
        set(),
    ),
    ({"type": ["integer", "null"], "format": "int64"}, {"type", "format"}, set()),
    ({"type": ["integer", "string"], "format": "int64"}, {"type", "format"}, {"int64"}),
    ({"items": {"$ref": "#"}}, {"items", "$ref", "$ref:recursive"}, set()),
    (
        {"$defs": {"a": {"type": "null"}}, "anyOf": [{"$ref": "#/$defs/a"}] * 2},
        {"anyOf", "$ref", "type"},
        set(),
    ),
    (
        {"$defs": {"a": {"items": {"$ref": "#/$defs/b"}}, "b": {"not": {"$ref": "#/$defs/a"}}},
         "$ref": "#/$defs/a"},
        {"$ref", "items", "not", "$ref:recursive"},
        set(),
    ),
    ({"if": {"required": ["a"]}, "then": None}, {"if", "required", "then"}, set()),
]  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "keywords", "formats"), CASES, ids=[f"{schema}" for schema, *_ in CASES]
)
def test_keywords_and_formats(schema, keywords, formats):
    used = used_by(schema)
    assert (used.keywords, used.formats) == (keywords, formats)


def test_a_deep_schema_is_no_danger():
    schema = {"type": "null"}
    for _ in range(50_000):
        schema = {"items": schema}
    assert used_by(schema).keywords == {"type", "items"}
