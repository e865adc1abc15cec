"""Kind `tool_parser`: finds calls of tools in what a model writes.

The text of an output is pushed piece by piece, in whatever pieces it comes; what comes back does
not depend on where it was cut, so that a stream and a whole answer are the same.

Models write anything: calls that are cut off, that are no JSON, or of tools that do not exist.
Any text will do, and nothing of it is lost: it is text or arguments, but for marks, for what
belongs to a call beside name and arguments, and for white space around calls.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from framework.contracts.base import Contract


@dataclass(frozen=True, slots=True)
class Text:
    """Text that belongs to no call."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegins:
    """The model calls the tool `name`.  index: of the call in this output, from 0 on."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """The next piece of the JSON text of the arguments of call `index`, as the model wrote it:
    where the model was cut off, or makes a mistake, all pieces together are no JSON."""

    index: int
    text: str


ToolEvent = Text | CallBegins | CallArguments


class ToolStream(Protocol):
    """The parser's state for one output."""

    def push(self, text: str) -> Sequence[ToolEvent]:
        """What follows from the next piece of text.  What may be the beginning of a call is held
        back until it is known.  Takes time by the length of the piece, not by that of the text so
        far."""
        ...

    def finish(self) -> Sequence[ToolEvent]:
        """The text has ended: what was held back, as text if it was no call after all."""
        ...


class ToolParser(Contract):
    """One way in which models write calls.  One instance serves all requests, also from several
    threads.

    example: how a model calls the tool "weather" with {"city": "Paris"}; for the conformance kit
    and for readers.
    """

    kind: ClassVar[str] = "tool_parser"
    example: ClassVar[str]

    @abstractmethod
    def stream(self, tools: Sequence[Mapping[str, Any]]) -> ToolStream:
        """A new state.  tools: those of the request, as OpenAI's API writes them; entries that
        are no functions have no name.  A call of a tool that is not among them is text."""
