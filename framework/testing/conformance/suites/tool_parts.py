"""Tools of a request, and what the events of a parser say."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from framework.contracts.tool_parser import (
    CallArguments,
    CallBegins,
    Text,
    ToolEvent,
    ToolStream,
)
from framework.testing.conformance.cases import expect


def tools(*names: str) -> list[dict[str, Any]]:
    """Tools of a request, as OpenAI's API writes them."""
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    return [
        {"type": "function", "function": {"name": name, "description": "", "parameters": schema}}
        for name in names
    ]


@dataclass
class Found:
    """What the events say.  names, arguments: by index of the call."""

    text: str = ""
    names: dict[int, str] = field(default_factory=dict)
    arguments: dict[int, str] = field(default_factory=dict)

    def __str__(self) -> str:
        calls = [f"{self.names[i]}({self.arguments.get(i, '')})" for i in self.names]
        return f"text {json.dumps(self.text)}, calls {calls}"

    @property
    def everything(self) -> str:
        """Text and arguments."""
        return "\n".join((self.text, *self.arguments.values()))


def gather(events: Iterable[ToolEvent]) -> Found:
    """All events of an output together."""
    found = Found()
    for event in events:
        match event:
            case Text():
                found.text += event.text
            case CallBegins():
                found.names[event.index] = event.name
            case CallArguments():
                known = found.arguments.get(event.index, "")
                found.arguments[event.index] = known + event.text
    return found


def events_of(stream: ToolStream, pieces: Iterable[str]) -> list[ToolEvent]:
    """Everything of an output.  Raises Violation for an answer that is no sequence: whoever reads
    it may count it, or read it twice."""
    answers = [*(stream.push(piece) for piece in pieces), stream.finish()]
    for answer in answers:
        expect(isinstance(answer, Sequence), "no sequence of events", found=answer)
    return [event for answer in answers for event in answer]
