"""Matchers over an index: a state is a number, a token leads from one to another."""

from __future__ import annotations

import pickle

import numpy as np
import numpy.typing as npt
from outlines_core import Index
from outlines_core import Vocabulary as Words

from framework.contracts.structured_output import Vocabulary
from framework_outlines_core.expressions import END

Row = npt.NDArray[np.uint32]


def indexed(expression: str, vocabulary: Vocabulary) -> bytes:
    """The index, as bytes.  Its last token is the end."""
    ids: dict[bytes, list[int]] = {END: [len(vocabulary)]}
    for number, token in enumerate(vocabulary.tokens):
        if token and END not in token:
            ids.setdefault(token, []).append(number)
    return pickle.dumps(Index(expression, Words(len(vocabulary) + 1, ids)))


class LoadedIndex:
    """Masks are kept by state: an output comes through the same ones again and again."""

    def __init__(self, compiled: bytes, vocabulary: Vocabulary) -> None:
        # What `indexed` made, in a child of this process.
        self._index: Index = pickle.loads(compiled)
        self.first = self._index.get_initial_state()
        self.ends = frozenset(vocabulary.eos_ids)
        self._size, self._words = len(vocabulary), vocabulary.words
        self._rows: dict[int, Row] = {}

    def matcher(self) -> IndexMatcher:
        return IndexMatcher(self)

    def after(self, state: int, token: int) -> int | None:
        """The state to which a token leads."""
        return self._index.get_next_state(state, token) if token < self._size else None

    def complete(self, state: int) -> bool:
        """Whether an output may end here.  "." and others take the mark of the end for a character
        of their own: with that nothing ends."""
        end = self._index.get_next_state(state, self._size)
        return end is not None and bool(self._index.is_final_state(end))

    def row(self, state: int) -> Row:
        """The mask of a state."""
        known = self._rows.get(state)
        if known is None:
            known = self._rows[state] = self._masked(state)
        return known

    def _masked(self, state: int) -> Row:
        bits = np.zeros(32 * (self._words + 1), np.uint8)
        bits[self._index.get_allowed_tokens(state)] = 1
        bits[self._size :] = 0
        bits[list(self.ends)] = self.complete(state)
        return np.packbits(bits, bitorder="little").view(np.uint32)[: self._words]


class IndexMatcher:
    """states: after each token, the first one before all."""

    def __init__(self, loaded: LoadedIndex) -> None:
        self._loaded = loaded
        self._states: list[int] = [loaded.first]
        self._ended = False

    def accept(self, token: int) -> bool:
        if self._ended:
            return False
        if token in self._loaded.ends:
            self._ended = self._loaded.complete(self._states[-1])
            return self._ended
        state = self._loaded.after(self._states[-1], token)
        if state is None:
            return False
        self._states.append(state)
        return True

    def rollback(self, tokens: int) -> None:
        own = tokens - 1 if self._ended and tokens else tokens
        if own:
            del self._states[-own:]
        self._ended = self._ended and not tokens

    def fill_bitmask(self, row: Row) -> None:
        row[:] = 0 if self._ended else self._loaded.row(self._states[-1])

    def is_terminated(self) -> bool:
        return self._ended
