"""`tool_parser:mistral`: what stands behind [TOOL_CALLS], in the older and the newer way.

[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Paris"}}, {"name": "clock", ...}]
[TOOL_CALLS]weather[ARGS]{"city": "Paris"}[TOOL_CALLS]clock[ARGS]{}
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from framework.contracts.tool_parser import ToolEvent, ToolParser, ToolStream
from framework_parsers.bodies import SPACE, Objects
from framework_parsers.calls import Body, CallStream, Events, Taken, names_of
from framework_parsers.objects import Arguments

MARK = "[TOOL_CALLS]"
KEYS = ("arguments", "parameters")
_HEAD = re.compile(r"\s*(?P<name>[^\s\[\]]+)\s*(\[CALL_ID\][^\[\]]*)?(\[ARGS\])?\s*")
_LONGEST_ID = 200


class Mistral(ToolParser):
    """An array of objects, or names with their arguments."""

    example: ClassVar[str] = '[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Paris"}}]'

    def stream(self, tools: Sequence[Mapping[str, Any]]) -> ToolStream:
        """See ToolParser."""
        events = Events(names_of(tools))
        return CallStream(events, MARK, lambda: _Either(events))


class _Either:
    """Decides by the first character."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._lead = [MARK]
        self._body: Body | None = None

    def take(self, text: str) -> Taken:
        """See Body."""
        if self._body is None:
            bare = text.lstrip(SPACE)
            self._lead.append(text[: len(text) - len(bare)])
            if not bare:
                return [], None
            self._body, text = self._choose("".join(self._lead), bare)
        return self._body.take(text) if text else ([], None)

    def finish(self) -> list[ToolEvent]:
        """See Body."""
        body = self._body
        return self._events.text("".join(self._lead)) if body is None else body.finish()

    def _choose(self, lead: str, bare: str) -> tuple[Body, str]:
        if bare.startswith("["):
            array = Objects(self._events, f"{lead}[", KEYS, between=",", close="]")
            return array, bare[1:]
        if bare.startswith("{"):
            return Objects(self._events, lead, KEYS), bare
        return _Named(self._events, lead), bare


class _Named:
    """A name, an id that may be left out, and the arguments."""

    def __init__(self, events: Events, lead: str) -> None:
        self._events = events
        self._lead = lead
        self._head = ""
        self._longest = max(map(len, events.names), default=0) + _LONGEST_ID
        self._arguments: Arguments | None = None

    def take(self, text: str) -> Taken:
        """See Body."""
        if self._arguments is not None:
            return self._arguments.take(text)
        seen = len(self._head)
        self._head += text
        brace = self._head.find("{", seen, self._longest)
        if brace < 0:
            return ([], None) if len(self._head) < self._longest else self._refuse()
        found = _HEAD.fullmatch(self._head, 0, brace)
        if found is None or found["name"] not in self._events.names:
            return self._refuse()
        self._arguments = Arguments(self._events)
        begun = self._events.begin(found["name"])
        events, rest = self._arguments.take(self._head[brace:])
        return [*begun, *events], rest

    def finish(self) -> list[ToolEvent]:
        """See Body."""
        return self._events.text(self._lead + self._head) if self._arguments is None else []

    def _refuse(self) -> Taken:
        return self._events.text(self._lead), self._head
