"""Models that think first: the grammar applies to what follows the reasoning."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from framework.contracts.reasoning_parser import ReasoningParser, ReasoningStream
from framework.contracts.structured_output import Matcher
from framework.contracts.tokenizer import Tokenizer

Rows = npt.NDArray[np.uint32]
_PROBE = "x"
"""Text that opens no reasoning."""


class Reasoning:
    """What all requests of an engine share.  words: 32-bit words of a bitmask."""

    def __init__(self, parser: ReasoningParser, tokenizer: Tokenizer, words: int) -> None:
        self.parser = parser
        self.tokenizer = tokenizer
        self._words = words
        self._openings: dict[str, Rows] = {}

    def begin(self, prompt: Sequence[int]) -> Thinking:
        """Of one output after this prompt."""
        return Thinking(self, self.tokenizer.decode(prompt, skip_special_tokens=False))

    def text_of(self, token: int) -> str:
        """What is whole of its text."""
        return self.tokenizer.token_bytes(token).decode("utf-8", "ignore")

    def openings(self, prompt: str, text: str) -> Rows:
        """The bitmask of the tokens that go on with an opening of the reasoning, where `text` may
        have begun one; kept, as it takes a look at the whole vocabulary."""
        known = self._openings.get(text)
        if known is None:
            if len(self._openings) >= 64:
                self._openings.clear()
            known = self._openings[text] = self._look(prompt, text)
        return known

    def _look(self, prompt: str, text: str) -> Rows:
        bits = np.zeros(32 * self._words, np.uint8)
        by_first: dict[str, list[int]] = {}
        for token in range(min(self.tokenizer.vocab_size, 32 * self._words)):
            piece = self.text_of(token)
            if piece.strip():  # white space opens nothing, and could go on for ever
                by_first.setdefault(piece[0], []).append(token)
        for first, tokens in by_first.items():
            if self.stream(prompt, text + first).ended:
                continue
            for token in tokens:
                bits[token] = not self.stream(prompt, text + self.text_of(token)).ended
        return np.packbits(bits, bitorder="little").view(np.uint32)

    def stream(self, prompt: str, text: str) -> ReasoningStream:
        """A new state, after `text`."""
        stream = self.parser.stream(prompt)
        stream.push(text)
        return stream


class Thinking:
    """The reasoning of one output, until it has ended."""

    def __init__(self, reasoning: Reasoning, prompt: str) -> None:
        self._reasoning = reasoning
        self._prompt = prompt
        self._stream = reasoning.parser.stream(prompt)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""
        self._inside = False

    @property
    def ended(self) -> bool:
        """From the next token on the grammar applies."""
        return self._stream.ended

    def take(self, token: int, matcher: Matcher) -> bool:
        """The output goes on with `token`; what of its text belongs to the answer already goes to
        the grammar.  False if that does not allow it."""
        text = self._decoder.decode(self._reasoning.tokenizer.token_bytes(token))
        self._text += text
        content = self._stream.push(text).content
        return not content.strip() or self._feed(content, matcher)

    def _feed(self, content: str, matcher: Matcher) -> bool:
        """To the grammar bytes count: any tokens that have these will do."""
        tokenizer = self._reasoning.tokenizer
        tokens = tokenizer.encode(content, add_special_tokens=False)
        same = b"".join(map(tokenizer.token_bytes, tokens)) == content.encode()
        return same and all(matcher.accept(token) for token in tokens)

    def fill(self, rows: Rows, drafts: Sequence[int], matcher: Matcher) -> tuple[int, int | None]:
        """(rows filled, drafts that belong to the reasoning): after these the grammar applies; None
        where it does not, or not with what is known.

        No row is filled where nothing needs a mask.  Where the model may either think or answer,
        the first token is of the grammar or opens the reasoning.
        """
        if not self._inside and self._undecided():
            rows[0] = self._reasoning.openings(self._prompt, self._text)
            if not self._text.strip():
                own = np.empty_like(rows[0])
                matcher.fill_bitmask(own)
                rows[0] |= own
            return 1, None
        self._inside = True
        if not drafts:
            return 0, None
        stream = self._reasoning.stream(self._prompt, self._text)
        for number, draft in enumerate(drafts):
            content = stream.push(self._reasoning.text_of(draft)).content
            if stream.ended:
                rows[: number + 1] = 0xFFFFFFFF
                # What stands behind the end in the same token is looked at when it has come.
                return number + 1, None if content.strip() else number + 1
        return 0, None

    def _undecided(self) -> bool:
        """Whether an answer could begin here, without reasoning."""
        return self._reasoning.stream(self._prompt, self._text + _PROBE).ended
