"""How much one output may still think, and the tokens that end its reasoning."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from framework.contracts.reasoning_parser import ReasoningParser
from framework.contracts.tokenizer import Tokenizer

Rows = npt.NDArray[np.uint32]
_PROBE = "x"
"""Text that opens no reasoning."""
_ALL = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Ending:
    """What all outputs of an engine share.  ids: tokens of the mark with which reasoning ends."""

    parser: ReasoningParser
    tokenizer: Tokenizer
    ids: tuple[int, ...]


class Thought:
    """The reasoning of one output.

    Tokens count from where it has opened, and an answer without reasoning is left alone.  Once
    `budget` of them have come, each next token is one of the mark, in order.
    """

    def __init__(self, ending: Ending, prompt: str, budget: int) -> None:
        self._ending, self._prompt = ending, prompt
        self._at = _Place(left=budget)
        self._parts: list[str] = []
        self._begin()

    def _begin(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stream = self._ending.parser.stream(self._prompt)
        self._stream.push(self._text)
        self._at = replace(self._at, open=self._at.open or self._opened())

    @property
    def _text(self) -> str:
        return "".join(self._parts)

    @property
    def ended(self) -> bool:
        """Nothing is asked of the next tokens."""
        return self._stream.ended

    @property
    def fault(self) -> str | None:
        """Why the output cannot go on: the mark was written, and the parser did not see it."""
        if self.ended or self._at.written < len(self._ending.ids):
            return None
        return "the mark that ends the reasoning was written, and the parser does not know it"

    @property
    def _wanted(self) -> int | None:
        """The next token, if there is only one."""
        at, ids = self._at, self._ending.ids
        if self.ended or not at.open or at.left > 0 or at.written == len(ids):
            return None
        return ids[at.written]

    def take(self, tokens: Sequence[int]) -> None:
        """The output goes on with these."""
        for token in tokens:
            self._step(token)

    def _step(self, token: int) -> None:
        if self.ended:
            return
        at = self._at
        if self._wanted is not None:
            self._at = replace(at, written=at.written + 1)
        elif at.open:
            self._at = replace(at, left=at.left - 1)
        text = self._decoder.decode(self._ending.tokenizer.token_bytes(token))
        self._parts.append(text)
        self._stream.push(text)
        if not self._at.open and not self.ended:
            self._at = replace(self._at, open=self._opened())

    def fill(self, rows: Rows, drafts: Sequence[int]) -> int:
        """Bitmasks for the next token and for those after drafts: rows uint32 [1 + drafts, words].
        Returns how many were filled; none where all tokens are allowed at every place."""
        at = self._at
        if self.ended or (at.open and at.left > len(drafts)):
            return 0
        after, masked = self._copy(), False
        for place in range(len(drafts) + 1):
            wanted = after._wanted
            rows[place] = _ALL if wanted is None else 0
            if wanted is not None:
                rows[place, wanted // 32] = 1 << wanted % 32
                masked = True
            if place == len(drafts):
                break
            if wanted is not None and drafts[place] != wanted:
                return place + 1  # what is drafted behind it never comes
            after._step(drafts[place])
        return len(drafts) + 1 if masked else 0

    def _copy(self) -> Thought:
        copy = Thought.__new__(Thought)
        copy._ending, copy._prompt = self._ending, self._prompt
        copy._at, copy._parts = self._at, [self._text]
        copy._begin()
        copy._decoder.setstate(self._decoder.getstate())
        return copy

    def _opened(self) -> bool:
        """Whether no answer can begin here without an end of the reasoning."""
        probe = self._ending.parser.stream(self._prompt)
        probe.push(self._text + _PROBE)
        return not probe.ended


@dataclass(frozen=True, slots=True)
class _Place:
    """left: tokens that may still be thought.  open: reasoning has begun.  written: tokens of the
    mark."""

    left: int
    open: bool = False
    written: int = 0


def mark_of(parser: ReasoningParser) -> str:
    """What stands between reasoning and answer in the example of the parser."""
    return parser.example.partition("why")[2].partition("because")[0]
