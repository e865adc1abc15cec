"""Rows of different lengths as one array."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from framework.contracts.step import I32

I64 = npt.NDArray[np.int64]


def ragged(starts: I32, counts: I32) -> tuple[I64, I64]:
    """(row, position) of each of counts[r] positions from starts[r] on, row by row."""
    rows = np.repeat(np.arange(len(counts)), counts)
    firsts = np.cumsum(counts) - counts
    return rows, np.arange(len(rows)) - firsts[rows] + starts[rows]
