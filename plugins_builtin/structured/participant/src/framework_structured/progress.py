"""Where the output of one request stands in its grammar."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from framework.contracts.structured_output import Matcher
from framework_structured.thinking import Thinking

Rows = npt.NDArray[np.uint32]


class Progress:
    """matcher: at the start of the output.  ends: the bitmask of the ends of a sequence.
    thinking: what comes before the grammar applies, if anything.

    fault: why the request cannot go on, if so.
    """

    def __init__(self, matcher: Matcher, ends: Rows, thinking: Thinking | None = None) -> None:
        self._matcher = matcher
        self._thinking = thinking
        self._ends = ends
        self.fault: str | None = None

    def take(self, tokens: Sequence[int]) -> None:
        """The output goes on with these."""
        for token in tokens:
            if self.fault is None and not self._step(token):
                self.fault = f"token {token} was sampled, which its grammar does not allow"

    @property
    def _thinks(self) -> Thinking | None:
        return None if self._thinking is None or self._thinking.ended else self._thinking

    def _step(self, token: int) -> bool:
        thinking = self._thinks
        if thinking is not None:
            return thinking.take(token, self._matcher)
        # With ignore_eos the output goes on after its end, with nothing but ends.
        return self._matcher.is_terminated() or self._matcher.accept(token)

    def fill(self, rows: Rows, drafts: Sequence[int]) -> int:
        """Bitmasks for the next token and for those after drafts, as far as the grammar allows
        these: rows uint32 [1 + drafts, words].  Returns how many were filled."""
        thinking = self._thinks
        if thinking is None:
            return self._fill_all(rows, drafts)
        filled, before = thinking.fill(rows, drafts, self._matcher)
        if before is None:
            return filled
        return filled + self._fill_all(rows[filled:], drafts[before:])

    def _fill_all(self, rows: Rows, drafts: Sequence[int]) -> int:
        filled, accepted = self._fill(rows[0]), 0
        for draft in drafts:
            if self._matcher.is_terminated() or not self._matcher.accept(draft):
                break
            accepted += 1
            filled += self._fill(rows[filled])
        if accepted:
            self._matcher.rollback(accepted)
        return filled

    def _fill(self, row: Rows) -> int:
        if self._matcher.is_terminated():
            row[:] = self._ends
        else:
            self._matcher.fill_bitmask(row)
        return 1
