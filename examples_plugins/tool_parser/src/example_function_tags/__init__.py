"""`tool_parser:function_tags`: <function=weather>{"city": "Paris"}</function>."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from framework.contracts.tool_parser import (
    CallArguments,
    CallBegins,
    Text,
    ToolEvent,
    ToolParser,
    ToolStream,
)

OPEN, CLOSE = "<function=", "</function>"


class FunctionTags(ToolParser):
    """Calls between tags that name the function."""

    example: ClassVar[str] = '<function=weather>{"city": "Paris"}</function>'

    def stream(self, tools: Sequence[Mapping[str, Any]]) -> ToolStream:
        """See ToolParser."""
        functions = [tool.get("function") or {} for tool in tools]
        return _Tagged({function.get("name") for function in functions})


class _Tagged:
    """mark: that is looked for.  tail: the end of the text, which may be its beginning."""

    def __init__(self, names: set[str]) -> None:
        self.names = names
        self.mark, self.tail, self.count = OPEN, "", 0
        self.body: list[str] = []  # of the call that has not ended

    def push(self, text: str) -> list[ToolEvent]:
        """See ToolStream."""
        found: list[ToolEvent] = []
        while text:
            before, hit, text = (self.tail + text).partition(self.mark)
            keep = 0 if hit else _beginning(before, self.mark)
            before, self.tail = before[: len(before) - keep], before[len(before) - keep :]
            if self.mark == OPEN:
                found += _text(before)
            else:
                self.body.append(before)
                found += self._call() if hit else []
            if hit:
                self.mark = CLOSE if self.mark == OPEN else OPEN
        return found

    def finish(self) -> list[ToolEvent]:
        """See ToolStream."""
        open_tag = OPEN if self.mark == CLOSE else ""
        rest = "".join((open_tag, *self.body, self.tail))
        self.body, self.tail, self.mark = [], "", OPEN
        return _text(rest)

    def _call(self) -> list[ToolEvent]:
        body, self.body = "".join(self.body), []
        name, _, arguments = body.partition(">")
        if name not in self.names or not _is_object(arguments):
            return _text(OPEN + body + CLOSE)
        self.count += 1
        return [CallBegins(self.count - 1, name), CallArguments(self.count - 1, arguments)]


def _text(text: str) -> list[ToolEvent]:
    return [Text(text)] if text else []


def _beginning(text: str, mark: str) -> int:
    """Length of the longest end of `text` with which `mark` may begin."""
    longest = min(len(text), len(mark) - 1)
    return next((n for n in range(longest, 0, -1) if mark.startswith(text[-n:])), 0)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
