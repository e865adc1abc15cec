"""Matchers over llguidance's own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from framework.contracts.structured_output import Vocabulary
from framework.errors import PluginError
from framework_llguidance.sources import refusal

_SPECIAL = b"\xff"
"""Bytes that begin so are the name of a special token to the library."""


class _Words:
    """What TokenizerWrapper takes."""

    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.tokens = [b"" if t.startswith(_SPECIAL) else t for t in vocabulary.tokens]
        for token in vocabulary.eos_ids:
            self.tokens[token] = _SPECIAL + f"<{token}>".encode()
        self.special_token_ids: Sequence[int] = list(vocabulary.eos_ids)
        self.eos_token_id = vocabulary.eos_ids[0]
        self._ids = {token: number for number, token in enumerate(vocabulary.tokens) if token}
        self._longest = max(map(len, self._ids), default=1)

    def __call__(self, text: str | bytes) -> list[int]:
        """The longest token at each place; bytes that are none are left out.  The library asks
        for text that can only come next."""
        data = text.encode() if isinstance(text, str) else bytes(text)
        found, at = [], 0
        while at < len(data):
            ends = range(min(at + self._longest, len(data)), at, -1)
            end = next((end for end in ends if data[at:end] in self._ids), at + 1)
            found += [self._ids[data[at:end]]] if data[at:end] in self._ids else []
            at = end
        return found


class Tokens:
    """A vocabulary as the library sees it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        ends = list(vocabulary.eos_ids)
        words = TokenizerWrapper(_Words(vocabulary))
        self._tokenizer = LLTokenizer(words, n_vocab=len(vocabulary), eos_token=ends)
        self._ends = frozenset(ends)
        self._words = vocabulary.words

    def check(self, source: str) -> None:
        """Raises as `StructuredOutput.compile` does: also for what is too large to begin with."""
        matcher = self._new(source)
        if not matcher.is_error():
            matcher.compute_bitmask()
        if matcher.is_error():
            raise refusal(matcher.get_error())

    def load(self, source: str) -> LoadedGrammar:
        return LoadedGrammar(self._new(source), self._ends)

    def _new(self, source: str) -> LLMatcher:
        return LLMatcher(self._tokenizer, source, log_level=0)


class LoadedGrammar:
    """Each matcher is a copy of one at the start."""

    def __init__(self, first: LLMatcher, ends: frozenset[int]) -> None:
        self._first = first
        self._ends = ends

    def matcher(self) -> LLGuidanceMatcher:
        return LLGuidanceMatcher(self._first.deep_copy(), self._ends)


class LLGuidanceMatcher:
    """One output."""

    def __init__(self, matcher: LLMatcher, ends: frozenset[int]) -> None:
        self._matcher = matcher
        self._ends = ends
        self._ended = False

    def accept(self, token: int) -> bool:
        if self._ended:
            return False
        if token in self._ends:  # kept apart, so that it can be taken back
            self._ended = self._matcher.is_accepting()
            return self._ended
        taken = self._matcher.try_consume_tokens([token]) == 1
        if not taken and self._matcher.is_error():  # a limit of the library, and no answer
            raise self._failed()
        return taken

    def rollback(self, tokens: int) -> None:
        own = tokens - 1 if self._ended and tokens else tokens
        if own and not self._matcher.rollback(own):
            raise self._failed()
        self._ended = self._ended and not tokens

    def fill_bitmask(self, row: npt.NDArray[np.uint32]) -> None:
        if self._ended:
            row[:] = 0
            return
        self._matcher.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)
        if self._matcher.is_error():
            raise self._failed()

    def is_terminated(self) -> bool:
        return self._ended

    def _failed(self) -> PluginError:
        text = " ".join(self._matcher.get_error().partition("<state>")[0].split())[:400]
        return PluginError(f"llguidance gave up: {text}", plugin="structured_output:llguidance")
