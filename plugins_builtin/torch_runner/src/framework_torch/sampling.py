"""From hidden states to the step's tokens, drafts verified.

A draft is checked by sampling at its own position: as a draw depends on (seed, position)
only, the tokens are those that a run without drafts gives, greedy or not.

    known ... t | d0  d1  d2        drafts
    sampled     | s0  s1  s2  s3    s0 = d0, s1 = d1, s2 != d2: tokens s0 s1 s2, accepted 2
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from framework.contracts.step import I32, LateInputs, Logprobs, empty_i32
from framework_torch.batch import Batch
from framework_torch.prepare import I64, Points, StepInputs

if TYPE_CHECKING:
    import torch

    from framework_torch.sampler import Sampler, SamplerOutput


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Tokens of a step: rows int64 [K], the plan's row of each of token_ids int32 [K]."""

    rows: I64
    token_ids: I32
    logprobs: Logprobs | None = None
    logprob_tokens: I32 = field(default_factory=empty_i32)
    errors: Mapping[int, str] = field(default_factory=dict)

    @staticmethod
    def nothing() -> Sampled:
        return Sampled(rows=np.zeros(0, np.int64), token_ids=np.zeros(0, np.int32))


def sample(
    points: Points,
    inputs: StepInputs,
    late: LateInputs,
    batch: Batch,
    sampler: Sampler,
    logits: torch.Tensor,
) -> Sampled:
    """Sample at all points, keep what follows from accepted drafts, note it in the table.

    logits: [N, V] of the points, N > 0; changed in place."""
    drafts = _drafts_of(points, inputs) if len(inputs.draft_ids) else None
    masked, mask_points = _masks(points, late)
    out = sampler.sample(
        logits,
        points.slots,
        points.positions,
        batch.table,
        bitmask=masked,
        bitmask_rows=mask_points,
        extra_history=None if drafts is None else _histories(points, drafts),
    )
    if drafts is None and not out.errors and out.logprobs is None:  # all points count
        batch.table.append(points.slots, points.positions, out.token_ids)
        return Sampled(rows=points.rows, token_ids=out.token_ids)
    keep = np.ones(len(points), np.bool_)
    if drafts is not None:
        keep = _verified(points, drafts, out.token_ids, mask_points)
    failed = {int(points.rows[n]): text for n, text in out.errors.items() if keep[n]}
    if failed:
        keep &= ~np.isin(points.rows, list(failed))
    ids = out.token_ids[keep]
    batch.table.append(points.slots[keep], points.positions[keep], ids)
    logprobs, tokens = _entries(out, keep)
    return Sampled(
        rows=points.rows[keep],
        token_ids=ids,
        logprobs=logprobs,
        logprob_tokens=tokens,
        errors=failed,
    )


def _drafts_of(points: Points, inputs: StepInputs) -> dict[int, I32]:
    """Drafts by the plan's row, for rows that have some."""
    ends = np.cumsum(inputs.drafts)
    return {
        int(inputs.rows[row]): inputs.draft_ids[ends[row] - inputs.drafts[row] : ends[row]]
        for row in np.flatnonzero(inputs.drafts)
    }


def _histories(points: Points, drafts: Mapping[int, I32]) -> list[I32]:
    """Per point the drafts before it, which are not in the token table."""
    none = empty_i32()
    return [
        drafts.get(row, none)[:step]
        for row, step in zip(points.rows.tolist(), points.steps.tolist(), strict=True)
    ]


def _masks(points: Points, late: LateInputs) -> tuple[npt.NDArray[np.uint32] | None, I32 | None]:
    """(bitmasks, the point of each).  Entry b is the mask after `covered[b]` drafts of its
    row; entries of rows that are not sampled fall away."""
    if late.bitmask is None or not len(late.bitmask_rows):
        return None, None
    covered = late.covered if len(late.covered) else np.zeros_like(late.bitmask_rows)
    width = int(points.steps.max()) + 1
    keys = points.rows * width + points.steps
    wanted = late.bitmask_rows.astype(np.int64) * width + covered
    where = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    found = (keys[where] == wanted) & (covered < width)
    if not found.any():
        return None, None
    return late.bitmask[found], where[found].astype(np.int32)


def _verified(
    points: Points, drafts: Mapping[int, I32], ids: I32, mask_points: I32 | None
) -> npt.NDArray[np.bool_]:
    """Which points count.  In a row with masks, points past the last mask do not: what the
    grammar allows there is not known yet."""
    keep = np.ones(len(points), np.bool_)
    masked = set() if mask_points is None else set(points.rows[mask_points].tolist())
    covered = set() if mask_points is None else set(mask_points.tolist())
    starts = np.flatnonzero(points.steps == 0).tolist()
    for start in starts:
        row = int(points.rows[start])
        own = drafts.get(row)
        if own is None:
            continue
        good = 0
        while good < len(own) and ids[start + good] == own[good]:
            if row in masked and start + good + 1 not in covered:
                break
            good += 1
        keep[start + good + 1 : start + len(own) + 1] = False
    return keep


def _entries(out: SamplerOutput, keep: npt.NDArray[np.bool_]) -> tuple[Logprobs | None, I32]:
    """(entries of kept points, index of each one's token among the kept)."""
    if out.logprobs is None:
        return None, empty_i32()
    chosen = keep[out.logprob_rows]
    new_index = np.cumsum(keep) - 1
    tokens = new_index[out.logprob_rows[chosen]].astype(np.int32)
    if chosen.all():
        return out.logprobs, tokens
    return out.logprobs.take(np.flatnonzero(chosen)), tokens
