"""Requests that follow from an OpenAPI document: as it describes them, and spoiled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from framework.testing.conformance.suites.asgi import Asked, as_json

WITH_BODY = ("post", "put", "patch")
RUBBISH = (
    *(b"", b"null", b"[]", b"{}", b"{", b"3", b'"x"', b"true", b"[null]", b"\xff\xfe\x00", b"NaN"),
    *(b"[" * 5000, b'{"a": ' * 5000, b"1e999", b"9" * 5000, b'{"":{}}', b'"\\ud800"', b" " * 999),
)
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, [], {}, "", -1, 0, 2**70, 1e400, float("nan"), "x" * 5000, [None], [[]], [{}]),
    *({"a": {"b": [1]}}, ["x", 1], "\ud800", "\x00", 0.5, [2**40], [-1], {"type": 3}),
)
ODD_PATHS = ("x" * 3000, "%00", "%ff%fe", "..%2f..%2fetc", "-1", "%F0%9F%98%80", "a/b", "nothing")


@dataclass(frozen=True)
class Operation:
    """One method of one path.  path: with {name} for parameters.  fields: of the JSON body, with
    a value for each that is needed; None without a JSON body.  known: names of all its fields."""

    method: str
    path: str
    parameters: tuple[str, ...]
    query: tuple[tuple[str, str], ...]
    queries: tuple[str, ...]
    fields: Any
    known: tuple[str, ...]

    def asked(self, fields: Any = None, path: str = "x") -> Asked:
        """The request that is described.  fields: to put into the body.  path: of parameters."""
        place = self.path
        for name in self.parameters:
            place = place.replace(f"{{{name}:path}}", path).replace(f"{{{name}}}", path)
        body = self.fields
        if isinstance(body, dict) and fields:
            body = {**body, **fields}
        query = "&".join(f"{name}={quote(value)}" for name, value in self.query)
        return Asked(self.method.upper(), place, None if body is None else as_json(body), query)

    @property
    def streams(self) -> bool:
        """It can be asked for a stream."""
        return "stream" in self.known


def operations(document: Mapping[str, Any]) -> Iterator[Operation]:
    """Every operation of an OpenAPI document."""
    for path, methods in document.get("paths", {}).items():
        for method, operation in methods.items():
            if not isinstance(operation, dict):
                continue
            given = operation.get("parameters", ())
            media = operation.get("requestBody", {}).get("content", {}).get("application/json")
            schema = None if media is None else media.get("schema", {})
            known = (
                () if schema is None else tuple(_resolved(schema, document).get("properties", ()))
            )
            yield Operation(
                method=method,
                path=path,
                parameters=tuple(p["name"] for p in given if p["in"] == "path"),
                queries=tuple(p["name"] for p in given if p["in"] == "query"),
                query=tuple(
                    (p["name"], str(_value(p.get("schema", {}), document)))
                    for p in given
                    if p["in"] == "query" and p.get("required")
                ),
                fields=None if media is None else _example(media, document),
                known=known,
            )


def hidden(router: Any, prefix: str) -> Iterator[Operation]:
    """Operations of routes that the document leaves out."""
    for route in router.routes:
        if getattr(route, "include_in_schema", True) or not getattr(route, "methods", None):
            continue
        for method in sorted(route.methods):
            yield Operation(
                method=method.lower(),
                path=prefix + route.path_format,
                parameters=tuple(route.param_convertors),
                query=(),
                queries=(),
                fields=None,
                known=(),
            )


def _example(media: Mapping[str, Any], document: Mapping[str, Any]) -> Any:
    if "example" in media:
        return media["example"]
    if media.get("examples"):
        return next(iter(media["examples"].values()))["value"]
    return _value(media.get("schema", {}), document)


def _resolved(schema: Mapping[str, Any], document: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in schema:
        found: Any = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        schema = found
    return schema


def _value(given: Mapping[str, Any], document: Mapping[str, Any]) -> Any:
    """A value that fits a schema: its example, or the plainest."""
    schema = _resolved(given, document)
    if schema.get("examples"):
        return schema["examples"][0]
    for name in ("example", "const", "default"):
        if name in schema:
            return schema[name]
    for name in ("enum", "anyOf", "oneOf", "allOf"):
        if schema.get(name):
            first = schema[name][0]
            return first if name == "enum" else _value(first, document)
    match schema.get("type"):
        case "object":
            fields = schema.get("properties", {})
            return {
                name: _value(fields.get(name, {}), document) for name in schema.get("required", ())
            }
        case "array":
            return [_value(schema.get("items", {}), document)]
        case "integer" | "number":
            return max(1, schema.get("minimum", 1))
        case "boolean":
            return False
        case "null":
            return None
        case _:
            return "Hello"
