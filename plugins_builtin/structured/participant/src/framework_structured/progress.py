"""Where the output of one request stands in its grammar."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from framework.contracts.structured_output import Matcher

Rows = npt.NDArray[np.uint32]


class Progress:
    """matcher: at the start of the output.  ends: the bitmask of the ends of a sequence.

    fault: why the request cannot go on, if so.
    """

    def __init__(self, matcher: Matcher, ends: Rows) -> None:
        self._matcher = matcher
        self._ends = ends
        self.fault: str | None = None

    def take(self, tokens: Iterable[int]) -> None:
        """The output goes on with these."""
        for token in tokens:
            if self.fault is None and not self._step(token):
                self.fault = f"token {token} was sampled, which its grammar does not allow"

    def _step(self, token: int) -> bool:
        # With ignore_eos the output goes on after its end, with nothing but ends.
        return self._matcher.is_terminated() or self._matcher.accept(token)

    def fill(self, rows: Rows, drafts: Iterable[int]) -> int:
        """Bitmasks for the next token and for those after drafts, as far as the grammar allows
        these: rows uint32 [1 + drafts, words].  Returns how many were filled."""
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
