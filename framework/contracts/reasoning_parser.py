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
    cut."""

    def push(self, text: str) -> Split:
        """What follows from the next piece of text; what may be a mark is held back."""
        ...

    def finish(self) -> Split:
        """The text has ended: what was held back."""
        ...


class ReasoningParser(Contract):
    """One way in which models mark what they think."""

    kind: ClassVar[str] = "reasoning_parser"

    @abstractmethod
    def stream(self, prompt: str) -> ReasoningStream:
        """A new state.  prompt: what the model was shown, whose end may open the reasoning."""

    @abstractmethod
    def reasoning_ended(self, token_ids: Sequence[int], tokenizer: Tokenizer) -> bool:
        """Whether prompt and output so far, as ids, have left the reasoning: from here on a
        grammar applies."""
