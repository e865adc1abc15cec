"""Calls that a request demands: the answer is JSON, kept to it by a grammar, whatever way of
writing calls the model knows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from framework.contracts.tool_parser import CallArguments, CallBegins, Text, ToolEvent

Tool = Mapping[str, Any]


def schema_of_calls(tools: Sequence[Tool], *, one_call: bool) -> dict[str, Any]:
    """A list of one call or more: [{"name": ..., "parameters": {...}}]."""
    items = [_call(tool, f"/items/anyOf/{index}") for index, tool in enumerate(tools)]
    most = {"maxItems": 1} if one_call else {}
    return {"type": "array", "minItems": 1, **most, "items": {"anyOf": items}}


def schema_of_arguments(tool: Tool) -> dict[str, Any]:
    """What the arguments of a call must be: an object, in any case."""
    schema: dict[str, Any] = dict(tool["function"].get("parameters") or {})
    return {"type": "object", **schema}


def _call(tool: Tool, place: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "name": {"const": tool["function"]["name"]},
            "parameters": _moved(schema_of_arguments(tool), f"{place}/properties/parameters"),
        },
        "required": ["name", "parameters"],
        "additionalProperties": False,
    }


def _moved(schema: Any, place: str) -> Any:
    """The schema, as it stands at `place` of another: references within it start there."""
    if isinstance(schema, list):
        return [_moved(one, place) for one in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {word: _moved(value, place) for word, value in schema.items()}
    if isinstance(schema.get("$ref"), str) and schema["$ref"].startswith("#"):
        moved["$ref"] = f"#{place}{schema['$ref'][1:]}"
    return moved


class NamedCall:
    """All text is the arguments of one call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._begun = False

    def push(self, text: str) -> Sequence[ToolEvent]:
        found = list(self._begin())
        return [*found, CallArguments(0, text)] if text else found

    def finish(self) -> Sequence[ToolEvent]:
        return list(self._begin())

    def _begin(self) -> Iterator[ToolEvent]:
        if not self._begun:
            self._begun = True
            yield CallBegins(0, self._name)


class CallList:
    """[{"name": ..., "parameters": {...}}, ...], piece by piece.

    Brackets of depth 1 are the list's, of depth 2 a call's, of depth 3 those of its parameters.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._quoted = self._escaped = False
        self._head = ""
        self._calls = 0
        self._held = ""

    def push(self, text: str) -> Sequence[ToolEvent]:
        found: list[ToolEvent] = []
        arguments = ""
        for char in text:
            before = self._depth
            self._walk(char)
            if max(before, self._depth) < 3:
                self._head = "" if before < 2 and self._depth < 2 else self._head + char
                continue
            if before == 2:
                found.append(CallBegins(self._calls, self._name()))
                self._head = ""
            arguments += char
            if self._depth == 2:
                found.append(CallArguments(self._calls, arguments))
                self._calls, arguments = self._calls + 1, ""
        return [*found, CallArguments(self._calls, arguments)] if arguments else found

    def finish(self) -> Sequence[ToolEvent]:
        """An answer that was cut before its first call has a name is text."""
        return [Text(self._head)] if self._head and not self._calls else []

    def _walk(self, char: str) -> None:
        if self._quoted:
            self._quoted = self._escaped or char != '"'
            self._escaped = char == "\\" and not self._escaped
        elif char == '"':
            self._quoted = True
        elif char in "[{":
            self._depth += 1
        elif char in "]}":
            self._depth -= 1

    def _name(self) -> str:
        """Of the call whose parameters begin: all that stands before them is known."""
        return str(json.loads(self._head + "0}")["name"])
