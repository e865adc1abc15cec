"""Structured output: the output is one of the texts that a request lists."""

from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt

from framework.contracts.structured_output import Coverage, Grammar, StructuredOutput, Vocabulary


class ChoicesOnly(StructuredOutput):
    """Choices, and nothing else."""

    coverage = Coverage(structures=frozenset(("choice",)))

    def check(self, grammar: Grammar) -> None:
        return  # any list of texts will do

    def compile(self, grammar: Grammar, vocabulary: Vocabulary) -> bytes:
        return grammar.text.encode()

    def load(self, compiled: bytes, vocabulary: Vocabulary) -> Choices:
        return Choices([text.encode() for text in json.loads(compiled)], vocabulary)


class Choices:
    """ids: of tokens, by their bytes."""

    def __init__(self, texts: list[bytes], vocabulary: Vocabulary) -> None:
        self.texts, self.vocabulary = texts, vocabulary
        self.ids: dict[bytes, list[int]] = {}
        for number, token in enumerate(vocabulary.tokens):
            if token:
                self.ids.setdefault(token, []).append(number)

    def matcher(self) -> ChoiceMatcher:
        return ChoiceMatcher(self)


class ChoiceMatcher:
    """left: after each token, what may still come of the choices that fit so far; None stands for
    the end of the sequence."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self._left: list[tuple[bytes, ...] | None] = [tuple(choices.texts)]

    def accept(self, token: int) -> bool:
        if token not in self._allowed():
            return False
        if token in self._choices.vocabulary.eos_ids:
            self._left.append(None)
            return True
        piece, left = self._choices.vocabulary.tokens[token], self._left[-1] or ()
        self._left.append(tuple(one[len(piece) :] for one in left if one.startswith(piece)))
        return True

    def rollback(self, tokens: int) -> None:
        del self._left[len(self._left) - tokens :]

    def fill_bitmask(self, row: npt.NDArray[np.uint32]) -> None:
        row[:] = 0
        for token in self._allowed():
            row[token // 32] |= np.uint32(1 << token % 32)

    def is_terminated(self) -> bool:
        return self._left[-1] is None

    def _allowed(self) -> set[int]:
        left = self._left[-1] or ()
        pieces = {one[:end] for one in left for end in range(1, len(one) + 1)}
        found = {token for piece in pieces for token in self._choices.ids.get(piece, ())}
        return found | set(self._choices.vocabulary.eos_ids if b"" in left else ())
