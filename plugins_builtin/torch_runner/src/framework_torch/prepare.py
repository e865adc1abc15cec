"""From a plan to arrays: flattened tokens, positions, places in the cache, rows to sample.

plan rows      r0 (3 new)        r1 (1 new)   r2 (2 new, 1 of them a draft)
tokens        |t5  t6  t7       |t9          |t2  d0
query_starts   0                 3            4         6
sampled                *         *            *   *      points, with wants_logits
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from framework.contracts.step import I32, StepPlan
from framework_torch.batch import Batch, ragged_range

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInputs:
    """R rows that are computed (a subset of the plan's), T tokens.

    rows: int64 [R], the plan's rows.  slots, num_new, computed, lengths, drafts: int32 [R].
    query_starts: int32 [R + 1].  token_rows: int64 [T], index into the R rows.
    tokens, positions: int64 [T].  draft_ids: int32, of these rows.
    """

    rows: I64
    slots: I32
    num_new: I32
    computed: I32
    lengths: I32
    drafts: I32
    draft_ids: I32
    query_starts: I32
    token_rows: I64
    tokens: I64
    positions: I64

    def pages(self, table: I32, page_tokens: int) -> I32:
        """Rows of a group's page table, as wide as this step needs: int32 [R, P]."""
        width = -(-int(self.lengths.max()) // page_tokens)
        return table[self.slots, :width]

    def slot_mapping(self, table: I32, page_tokens: int) -> I64:
        """Where each token's K and V go: int64 [T]."""
        pages, offsets = np.divmod(self.positions, page_tokens)
        return table[self.slots[self.token_rows], pages].astype(np.int64) * page_tokens + offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Places at which a token is sampled, N of them, in the order of the plan's rows.

    rows: int64 [N], the plan's row.  steps: int64 [N], drafts of the row before the point.
    at: int64 [N], index of the token whose logits count.  slots: int32 [N].
    positions: int64 [N], index that the new token gets in its sequence.
    """

    rows: I64
    steps: I64
    at: I64
    slots: I32
    positions: I64

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, keep: npt.NDArray[np.bool_]) -> Points:
        return Points(
            rows=self.rows[keep],
            steps=self.steps[keep],
            at=self.at[keep],
            slots=self.slots[keep],
            positions=self.positions[keep],
        )


def prepare(plan: StepPlan, batch: Batch) -> tuple[StepInputs, dict[int, str]]:
    """Inputs of all rows that can be computed, and plan row -> why another cannot."""
    slots, num_new, computed = plan.slots, plan.num_new, plan.computed
    drafts = plan.draft_counts if len(plan.draft_counts) else np.zeros_like(num_new)
    draft_ids = plan.draft_ids
    fine = batch.held[slots] & (batch.generations[slots] == plan.generations)
    fine &= computed + num_new - drafts <= batch.table.known[slots]
    fine &= (num_new > drafts) & (computed + num_new < batch.table.width)
    if len(draft_ids):
        outside = (draft_ids < 0) | (draft_ids >= batch.vocab_size)
        fine[np.repeat(np.arange(len(slots)), drafts)[outside]] = False
    if batch.broken:
        fine &= ~np.isin(slots, list(batch.broken))
    rows = np.arange(len(slots))
    errors: dict[int, str] = {}
    if not fine.all():
        errors = _explain(plan, batch, np.flatnonzero(~fine))
        draft_ids = draft_ids[np.repeat(fine, drafts)]
        rows, slots, num_new = rows[fine], slots[fine], num_new[fine]
        computed, drafts = computed[fine], drafts[fine]
    if len(rows) and num_new.max() == 1:  # a row, a token; and none of them a draft
        starts, token_rows = np.arange(len(rows) + 1, dtype=np.int32), np.arange(len(rows))
        positions = computed.astype(np.int64)
        tokens = batch.table.tokens[slots, positions].astype(np.int64)
    else:
        starts = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(num_new, out=starts[1:])
        token_rows = np.repeat(np.arange(len(rows)), num_new)
        offsets = ragged_range(num_new)
        positions = offsets + computed[token_rows]
        tokens = batch.table.tokens[slots[token_rows], positions].astype(np.int64)
        if len(draft_ids):
            tokens[offsets >= (num_new - drafts)[token_rows]] = draft_ids
    inputs = StepInputs(
        rows=rows,
        slots=slots,
        num_new=num_new,
        computed=computed,
        lengths=computed + num_new,
        drafts=drafts,
        draft_ids=draft_ids,
        query_starts=starts,
        token_rows=token_rows,
        tokens=tokens,
        positions=positions,
    )
    return inputs, errors


def _explain(plan: StepPlan, batch: Batch, rows: I64) -> dict[int, str]:
    """A sentence for each row that cannot be computed; rows without tokens need none."""
    errors = {}
    for row in rows.tolist():
        slot, generation = int(plan.slots[row]), int(plan.generations[row])
        end = int(plan.computed[row] + plan.num_new[row])
        if not batch.held[slot] or batch.generations[slot] != generation:
            errors[row] = f"slot {slot} does not hold generation {generation} any more"
        elif slot in batch.broken:
            errors[row] = batch.broken[slot]
        elif plan.num_new[row] or plan.wants_logits[row]:
            errors[row] = (
                f"tokens up to {end} were planned, but only {batch.table.known[slot]} of "
                f"at most {batch.table.width - 1} are known, or drafts are not valid ids"
            )
    return errors


def sample_points(plan: StepPlan, inputs: StepInputs, batch: Batch) -> Points:
    """The last token of each row that wants logits, and with d drafts the d before it."""
    wanted = plan.wants_logits[inputs.rows] & batch.samples[inputs.slots]
    if not len(inputs.draft_ids):
        if len(inputs.tokens) == len(inputs.rows) and wanted.all():
            return Points(  # a plain decode step: every token is a point
                rows=inputs.rows,
                steps=np.zeros(len(inputs.rows), np.int64),
                at=inputs.token_rows,
                slots=inputs.slots,
                positions=inputs.positions + 1,
            )
        rows = np.flatnonzero(wanted)
        at = inputs.query_starts[1:][rows].astype(np.int64) - 1
        return Points(
            rows=inputs.rows[rows],
            steps=np.zeros(len(rows), np.int64),
            at=at,
            slots=inputs.slots[rows],
            positions=inputs.positions[at] + 1,
        )
    counts = np.where(wanted, inputs.drafts + 1, 0)
    rows = np.repeat(np.arange(len(counts)), counts)
    steps = ragged_range(counts)
    at = inputs.query_starts[1:][rows].astype(np.int64) - (inputs.drafts + 1)[rows] + steps
    return Points(
        rows=inputs.rows[rows],
        steps=steps,
        at=at,
        slots=inputs.slots[rows],
        positions=inputs.positions[at] + 1,
    )
