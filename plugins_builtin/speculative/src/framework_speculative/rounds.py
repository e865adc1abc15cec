"""The loop that models of drafts share: a token for each row, then the next one after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from framework.contracts.proposer import ComputedStep
from framework.contracts.step import I32

if TYPE_CHECKING:
    import torch

    Advance = Callable[[np.ndarray, I32, I32, torch.Tensor], torch.Tensor]


def draft_rounds(
    step: ComputedStep,
    hidden: torch.Tensor,
    logits: Callable[[torch.Tensor], torch.Tensor],
    advance: Advance,
) -> list[I32]:
    """Drafts of each row of the step, at most wanted[r].

    hidden: [n, H], of the rows that want some, in order: what the first draft is read from.
    advance(rows, tokens, positions, hidden) -> [m, H]: of these rows, after tokens[i] at
    positions[i], hidden being that before it.
    """
    forward = step.forward
    assert forward is not None
    drafts: list[list[int]] = [[] for _ in step.slots]
    rows = np.flatnonzero(step.wanted)
    for number in range(int(step.wanted.max(initial=0))):
        positions = (step.lengths[rows] + number).astype(np.int32)
        before = [np.array(drafts[row], np.int32) for row in rows]
        tokens = forward.sample(logits(hidden), step.slots[rows], positions, before)
        for row, token in zip(rows.tolist(), tokens.tolist(), strict=True):
            drafts[row].append(token)
        on = np.flatnonzero(step.wanted[rows] > number + 1)
        if not len(on):
            break
        rows, tokens, positions = rows[on], tokens[on], positions[on]
        hidden = advance(rows, tokens, positions, hidden[on])
    return [np.array(ids, np.int32) for ids in drafts]
