"""`tool_parser:llama3_json`: bare JSON objects, as Llama 3 writes them.

{"name": "weather", "parameters": {"city": "Paris"}}
<|python_tag|>{"name": "weather", "parameters": {"city": "Paris"}}; {"name": "clock", ...}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from framework.contracts.tool_parser import ToolParser, ToolStream
from framework_parsers.bodies import Objects
from framework_parsers.calls import CallStream, Events, names_of

TAG = "<|python_tag|>"
KEYS = ("parameters", "arguments")


class Llama3Json(ToolParser):
    """An answer that begins with a JSON object, and objects behind the tag; several may stand
    behind each other, with or without a semicolon between."""

    example: ClassVar[str] = '{"name": "weather", "parameters": {"city": "Paris"}}'

    def stream(self, tools: Sequence[Mapping[str, Any]]) -> ToolStream:
        """See ToolParser."""
        events = Events(names_of(tools))

        def objects(lead: str) -> Objects:
            return Objects(events, lead, KEYS, between=";")

        return CallStream(events, TAG, lambda: objects(TAG), first=objects(""))
