"""Ragged arrays of a step's result, from lists."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from framework.contracts.step import I32, Logprobs


def ragged(rows: Sequence[Sequence[int]]) -> tuple[I32, I32]:
    """(values, offsets): int32 [sum] and [n + 1]."""
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    return np.array([x for row in rows for x in row], np.int32), offsets


def flat(ids: Sequence[int], hundredths: Sequence[int]) -> Logprobs:
    """One entry for each token: log-probabilities in hundredths."""
    return Logprobs(
        offsets=np.arange(len(ids) + 1, dtype=np.int32),
        ids=np.array(ids, np.int32),
        values=np.array(hundredths, np.float32) / np.float32(100),
        ranks=np.ones(len(ids), np.int32),
    )
