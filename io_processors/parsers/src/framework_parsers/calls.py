"""What the parsers of calls share: texts and calls as numbered events, and how a call is read.

A parser is a `CallStream`: text up to a mark, then a `Body` that reads what follows the mark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from framework.contracts.tool_parser import CallArguments, CallBegins, Text, ToolEvent
from framework_parsers.marks import Until


def names_of(tools: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Names of the tools of a request; what is no function has none."""
    functions = [tool.get("function") for tool in tools if isinstance(tool, Mapping)]
    names = [function.get("name") for function in functions if isinstance(function, Mapping)]
    return frozenset(name for name in names if isinstance(name, str))


@dataclass(slots=True)
class Events:
    """Makes events; numbers the calls of tools in `names`; drops white space around calls, which
    only lays them out."""

    names: frozenset[str]
    count: int = 0
    _space: list[str] = field(default_factory=list)
    _bare: bool = True

    def text(self, text: str) -> list[ToolEvent]:
        """White space at the beginning and after a call waits for what follows it."""
        if self._bare and (not text or text.isspace()):
            self._space.append(text)
            return []
        whole = "".join((*self._space, text))
        self._space, self._bare = [], False
        return [Text(whole)] if whole else []

    def begin(self, name: str) -> list[ToolEvent]:
        """A new call."""
        self._space, self._bare = [], True
        self.count += 1
        return [CallBegins(self.count - 1, name)]

    def arguments(self, text: str) -> list[ToolEvent]:
        """More of the arguments of the call that was begun last."""
        return [CallArguments(self.count - 1, text)] if text else []

    def finish(self) -> list[ToolEvent]:
        """White space that nothing followed: text, unless there were calls."""
        space, self._space = "".join(self._space), []
        return [Text(space)] if space and not self.count else []


_PIECE = 1 << 14
"""Characters that are read at one time.  What stands behind a call is copied, so that many calls in
one long text would take quadratic time."""

Taken = tuple[list[ToolEvent], str | None]
"""What a piece of text brought, and what of it stands behind the end; None: more is wanted."""


class Body(Protocol):
    """Reads what stands behind a mark."""

    def take(self, text: str) -> Taken:
        """The next piece."""
        ...

    def finish(self) -> list[ToolEvent]:
        """Nothing more comes."""
        ...


class CallStream:
    """State for one output.  body: makes the reader of what follows `mark`.  first: one that reads
    what stands at the very beginning, without a mark."""

    def __init__(
        self, events: Events, mark: str, body: Callable[[], Body], first: Body | None = None
    ) -> None:
        self._events = events
        self._until = Until(mark)
        self._make = body
        self._body = first

    def push(self, text: str) -> list[ToolEvent]:
        """See ToolStream."""
        places = range(0, len(text), _PIECE)
        return [event for at in places for event in self._push(text[at : at + _PIECE])]

    def _push(self, text: str) -> list[ToolEvent]:
        found: list[ToolEvent] = []
        rest: str | None = text
        while rest:
            if self._body is None:
                before, rest = self._until.take(rest)
                found += self._events.text(before)
                if rest is not None:
                    self._body = self._make()
            else:
                events, rest = self._body.take(rest)
                found += events
                if rest is not None:
                    self._body = None
        return found

    def finish(self) -> list[ToolEvent]:
        """See ToolStream."""
        body, self._body = self._body, None
        held = self._events.text(self._until.rest()) if body is None else body.finish()
        return [*held, *self._events.finish()]
