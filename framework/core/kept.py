"""Of what a result holds, that which requests took: none after their end, none of a late row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from framework.contracts.step import Logprobs, StepResult


def taken_tokens(result: StepResult, taken: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_] | None:
    """Which of the result's tokens were taken; None: all."""
    if taken.sum() == len(result.token_ids):
        return None
    offsets = result.token_offsets.astype(np.int64)  # of any kind of integers
    counts = np.diff(offsets)
    number = np.arange(len(result.token_ids)) - np.repeat(offsets[:-1], counts)
    return number < np.repeat(taken, counts)


def taken_logprobs(
    result: StepResult, kept: npt.NDArray[np.bool_] | None
) -> tuple[Logprobs | None, npt.NDArray[np.int32]]:
    """Log-probabilities of the tokens that were taken, numbered anew."""
    if result.logprobs is None or kept is None:
        return result.logprobs, result.logprob_tokens
    place = (np.cumsum(kept) - 1).astype(np.int32)
    wanted = np.flatnonzero(kept[result.logprob_tokens])
    return result.logprobs.take(wanted), place[result.logprob_tokens[wanted]]
