"""Kind `reasoning_parser`: tells what a model thinks from what it answers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from framework.contracts.base import Contract

if TYPE_CHECKING:
    from framework.contracts.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Split:
    """The next piece of both."""

    reasoning: str = ""
    content: str = ""


class ReasoningStream(Protocol):
    """The parser's state for one output.  What comes back does not depend on where the text was
    cut, and any text will do.  Nothing is lost: but for marks, and the white space around them,
    both parts together are the text."""

    @property
    def ended(self) -> bool:
        """Whatever comes next belongs to the answer."""
        ...

    def push(self, text: str) -> Split:
        """What follows from the next piece of text; what may be a mark is held back.  Takes time
        by the length of the piece, not by that of the text so far."""
        ...

    def finish(self) -> Split:
        """The text has ended: what was held back."""
        ...


class ReasoningParser(Contract):
    """One way in which models mark what they think.  One instance serves all requests, also from
    several threads.

    example: what a model writes that thinks "why" and answers "because", marks and all; for the
    conformance kit and for readers.
    """

    kind: ClassVar[str] = "reasoning_parser"
    example: ClassVar[str]

    @abstractmethod
    def stream(self, prompt: str) -> ReasoningStream:
        """A new state.  prompt: what the model was shown, whose end may open the reasoning or
        close it; marks in earlier turns mean nothing."""

    def reasoning_ended(
        self, prompt_ids: Sequence[int], output_ids: Sequence[int], tokenizer: Tokenizer
    ) -> bool:
        """Whether an output, as ids, has left the reasoning: from here on a grammar applies.

        Says what a stream says that was pushed the text of the ids; override it where the ids
        alone show it faster.
        """
        stream = self.stream(tokenizer.decode(prompt_ids, skip_special_tokens=False))
        stream.push(tokenizer.decode(output_ids, skip_special_tokens=False))
        return stream.ended
