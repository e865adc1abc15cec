"""`tool_parser:hermes`: calls between <tool_call> and </tool_call>, as Hermes and Qwen write them.

<tool_call>
{"name": "weather", "arguments": {"city": "Paris"}}
</tool_call>
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from framework.contracts.tool_parser import ToolParser, ToolStream
from framework_parsers.bodies import Objects
from framework_parsers.calls import CallStream, Events, names_of

OPEN, CLOSE = "<tool_call>", "</tool_call>"
KEYS = ("arguments", "parameters")


class Hermes(ToolParser):
    """Calls as JSON objects between marks."""

    example: ClassVar[str] = (
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
    )

    def stream(self, tools: Sequence[Mapping[str, Any]]) -> ToolStream:
        """See ToolParser."""
        events = Events(names_of(tools))
        return CallStream(events, OPEN, lambda: Objects(events, OPEN, KEYS, close=CLOSE))
