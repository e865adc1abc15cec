"""The log-probabilities that a scripted runner tells."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from framework.contracts.step import I32, Logprobs, PromptLogprobs
from framework.testing.occupant import Occupant
from framework.testing.ragged import flat


def logprobs_of(
    occupants: Sequence[Occupant], tokens: Sequence[list[int]]
) -> tuple[Logprobs | None, I32]:
    """Of the newest tokens of those who asked, and which of all newest tokens these are.  The
    log-probability of the token at position p is -p / 100."""
    ids, values, wanted, place = [], [], [], 0
    for occupant, new in zip(occupants, tokens, strict=True):
        sampling = occupant.request.sampling
        if sampling is not None and sampling.logprobs is not None:
            ids += new
            start = len(occupant.tokens) - len(new)
            values += [-(start + k) for k in range(len(new))]
            wanted += [place + k for k in range(len(new))]
        place += len(new)
    if not wanted:
        return None, np.zeros(0, np.int32)
    return flat(ids, values), np.array(wanted, np.int32)


def prompt_logprobs_of(
    row: int, occupant: Occupant, computed: int, end: int
) -> list[PromptLogprobs]:
    """Of what a step that computes tokens [computed, end) tells of the prompt, if it was asked;
    those of position p are -p / 100."""
    request = occupant.request
    if request.sampling is None or request.sampling.prompt_logprobs is None:
        return []
    first = max(computed + 1, request.prompt_logprobs_from)
    positions = range(first, min(end + 1, request.num_prompt))
    if not positions:
        return []
    ids = [occupant.tokens[p] for p in positions]
    return [PromptLogprobs(row=row, start=first, logprobs=flat(ids, [-p for p in positions]))]
