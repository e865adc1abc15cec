"""What the parsers of calls share: texts and calls, numbered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from framework.contracts.tool_parser import CallArguments, CallBegins, Text, ToolEvent
from framework_parsers.values import Call


def names_of(tools: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Names of the tools of a request; what is no function has none."""
    functions = [tool.get("function") for tool in tools if isinstance(tool, Mapping)]
    names = [function.get("name") for function in functions if isinstance(function, Mapping)]
    return frozenset(name for name in names if isinstance(name, str))


class Numbered:
    """Makes events; numbers the calls; drops white space around calls, which only lays them
    out."""

    def __init__(self) -> None:
        self.count = 0
        self._space = ""

    def text(self, text: str) -> list[ToolEvent]:
        """White space after a call waits for what follows it."""
        if self.count == 0:
            return [Text(text)] if text else []
        if not text.strip():
            self._space += text
            return []
        whole, self._space = self._space + text, ""
        return [Text(whole)]

    def call(self, call: Call) -> list[ToolEvent]:
        """A whole call."""
        self._space = ""
        index, self.count = self.count, self.count + 1
        return [CallBegins(index, call.name), CallArguments(index, call.arguments)]
