"""What the core counts for statistics."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt


@dataclass(slots=True)
class Counters:
    """They only rise.  drafted: rows with drafts.  drafts: tokens of them.  accepted: those that
    were accepted, by their place among the drafts of a row."""

    prefix_queries: int = 0
    prefix_hits: int = 0
    preemptions: int = 0
    drafted: int = 0
    drafts: int = 0
    accepted: list[int] = field(default_factory=list)

    def add_drafts(
        self, counts: npt.NDArray[np.integer], accepted: npt.NDArray[np.integer]
    ) -> None:
        """Of rows of a step."""
        self.drafted += int((counts > 0).sum())
        self.drafts += int(counts.sum())
        most = int(accepted.max(initial=0))
        self.accepted += [0] * (most - len(self.accepted))
        for place in range(most):
            self.accepted[place] += int((accepted > place).sum())
