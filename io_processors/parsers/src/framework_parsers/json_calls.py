"""Calls as bare JSON: Llama 3 (objects) and Mistral (an array behind a mark).

{"name": "weather", "parameters": {"city": "Paris"}}
[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Paris"}}]
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from framework.contracts.tool_parser import ToolEvent, ToolParser, ToolStream
from framework_parsers.calls import Numbered, names_of
from framework_parsers.marks import held_back
from framework_parsers.values import Call, call_of, end_of_value, read_call

PYTHON_TAG = "<|python_tag|>"
TOOL_CALLS = "[TOOL_CALLS]"
KEYS = ("parameters", "arguments")


class Llama3Json(ToolParser):
    """An answer that begins with a JSON object; several stand behind each other, with or without
    a semicolon between."""

    def stream(self, tools: Sequence[Mapping[str, Any]]) -> ToolStream:
        """See ToolParser."""
        return _Objects(names_of(tools))


class _Objects:
    """Reads objects as long as nothing else comes; from then on all is text."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._events = Numbered()
        self._buffer = ""
        self._text = False

    def push(self, text: str) -> list[ToolEvent]:
        if self._text:
            return self._events.text(text)
        self._buffer += text
        found: list[ToolEvent] = []
        while not self._text:
            bare = self._between()
            if not bare.startswith("{"):
                begins = not bare or PYTHON_TAG.startswith(bare)
                return found if begins else [*found, *self._give_up()]
            end = end_of_value(bare)
            if end is None:
                return found
            call = read_call(bare[:end], self._names, KEYS)
            if call is None:
                return [*found, *self._give_up()]
            found += self._events.call(call)
            self._buffer = bare[end:]
        return found

    def finish(self) -> list[ToolEvent]:
        return [] if self._text else self._give_up()

    def _between(self) -> str:
        """What stands behind space, semicolons and the tag."""
        bare = self._buffer.lstrip().removeprefix(PYTHON_TAG).lstrip()
        return bare.lstrip("; \n\t") if self._events.count else bare

    def _give_up(self) -> list[ToolEvent]:
        self._text = True
        rest, self._buffer = self._buffer, ""
        return self._events.text(rest)


class Mistral(ToolParser):
    """Behind [TOOL_CALLS] an array of calls."""

    def stream(self, tools: Sequence[Mapping[str, Any]]) -> ToolStream:
        """See ToolParser."""
        return _Array(names_of(tools))


class _Array:
    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._events = Numbered()
        self._buffer = ""
        self._inside = False

    def push(self, text: str) -> list[ToolEvent]:
        self._buffer += text
        found: list[ToolEvent] = []
        while True:
            if not self._inside:
                before, hit, after = self._buffer.partition(TOOL_CALLS)
                if not hit:
                    keep = held_back(self._buffer, (TOOL_CALLS,))
                    free = self._buffer[: len(self._buffer) - keep]
                    self._buffer = self._buffer[len(free) :]
                    return [*found, *self._events.text(free)]
                found += self._events.text(before)
                self._buffer, self._inside = after, True
            end = end_of_value(self._buffer)
            if end is None:
                return found
            found += self._array(self._buffer[:end])
            self._buffer, self._inside = self._buffer[end:], False

    def finish(self) -> list[ToolEvent]:
        rest, self._buffer = self._buffer, ""
        return self._events.text((TOOL_CALLS if self._inside else "") + rest)

    def _array(self, text: str) -> list[ToolEvent]:
        calls = self._calls(text)
        if calls is None:
            return self._events.text(TOOL_CALLS + text)
        return [event for call in calls for event in self._events.call(call)]

    def _calls(self, text: str) -> list[Call] | None:
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(values, list):
            return None
        calls = [call_of(value, self._names, KEYS) for value in values]
        found = [call for call in calls if call is not None]
        return found if found and len(found) == len(calls) else None
