"""`tool_parser:hermes`: calls between <tool_call> and </tool_call>, as Hermes and Qwen write them.

<tool_call>
{"name": "weather", "arguments": {"city": "Paris"}}
</tool_call>
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from framework.contracts.tool_parser import ToolEvent, ToolParser, ToolStream
from framework_parsers.calls import Numbered, names_of
from framework_parsers.marks import held_back
from framework_parsers.values import read_call

OPEN, CLOSE = "<tool_call>", "</tool_call>"
KEYS = ("arguments", "parameters")


class Hermes(ToolParser):
    """Calls as JSON objects between marks; a call is told when it is whole."""

    def stream(self, tools: Sequence[Mapping[str, Any]]) -> ToolStream:
        """See ToolParser."""
        return _Stream(names_of(tools))


class _Stream:
    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._events = Numbered()
        self._buffer = ""
        self._inside = False

    def push(self, text: str) -> list[ToolEvent]:
        self._buffer += text
        found: list[ToolEvent] = []
        while True:
            mark = CLOSE if self._inside else OPEN
            before, hit, after = self._buffer.partition(mark)
            if not hit:
                break
            found += self._call(before) if self._inside else self._events.text(before)
            self._buffer, self._inside = after, not self._inside
        if not self._inside:
            keep = held_back(self._buffer, (OPEN,))
            free = self._buffer[: len(self._buffer) - keep]
            self._buffer = self._buffer[len(free) :]
            found += self._events.text(free)
        return found

    def finish(self) -> list[ToolEvent]:
        rest, self._buffer = self._buffer, ""
        if not self._inside:
            return self._events.text(rest)
        self._inside = False
        # Some models end without the mark.
        call = read_call(rest, self._names, KEYS)
        return self._events.call(call) if call else self._events.text(OPEN + rest)

    def _call(self, text: str) -> list[ToolEvent]:
        call = read_call(text, self._names, KEYS)
        return self._events.call(call) if call else self._events.text(OPEN + text + CLOSE)
