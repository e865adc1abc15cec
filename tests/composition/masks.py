"""What a grammar and a budget of reasoning allow, token by token, by their definitions alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from framework import SamplingParams
from framework.contracts.structured_output import Matcher

MARK = b"</think>"
"""What ends the reasoning of deepseek_r1, which begins with the output."""


class Masks:
    """Of one output.  tokens: bytes by id, one token for each byte; the last, eos, ends an output.
    thinks: reasoning comes first.  budget: tokens of it.  matcher: of what follows, if there is a
    grammar."""

    def __init__(
        self,
        tokens: Sequence[bytes],
        eos: int,
        *,
        thinks: bool,
        budget: int | None,
        matcher: Matcher | None,
    ) -> None:
        self._tokens, self._eos = tokens, eos
        self._thinks, self._left, self._matcher = thinks, budget, matcher
        self._text, self._written = b"", 0

    def allowed(self) -> npt.NDArray[np.bool_] | None:
        """bool [vocabulary], or None where all are."""
        bits = np.zeros(self._eos + 1, bool)
        if self._thinks:
            if self._left is None or self._left > 0:
                return None
            bits[self._tokens.index(MARK[self._written : self._written + 1])] = True
            return bits
        if self._matcher is None:
            return None
        if self._matcher.is_terminated():
            bits[self._eos] = True
            return bits
        row = np.zeros(-(-len(bits) // 32), np.uint32)
        self._matcher.fill_bitmask(row)
        found = np.unpackbits(row.view(np.uint8), bitorder="little")
        return found[: len(bits)].astype(bool)

    def take(self, token: int) -> None:
        """The output goes on with it."""
        if self._thinks:
            self._text += self._tokens[token]
            if self._left is not None:
                self._written += self._left <= 0
                self._left -= 1
            self._thinks = MARK not in self._text
        elif self._matcher is not None and not self._matcher.is_terminated():
            assert self._matcher.accept(token), f"token {token} is not of the grammar"


def share_of(mass: npt.NDArray[np.float64], token: int) -> tuple[float, float]:
    """Of [0, 1), in the order of the vocabulary."""
    reached = np.cumsum(mass) / mass.sum()
    return float(reached[token - 1]) if token else 0.0, float(reached[token])


def stop_ids_of(params: SamplingParams, eos: int) -> set[int]:
    return {*(params.stop_token_ids or ())} | (set() if params.ignore_eos else {eos})
