"""A step while it is being planned, and its sealing into a `StepPlan`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from framework.contracts.step import (
    I32,
    AdmittedRequest,
    KvOp,
    PageUpdates,
    StepPlan,
    empty_i32,
)

if TYPE_CHECKING:
    from framework.core.kv.allocation import Allocation, Growth, PageBlock
    from framework.core.state import CoreState

Counts = npt.NDArray[np.int64]
_Entry = tuple[int, int, Sequence[int], bool]  # slot, start, ids, replace


class StepDraft:
    """budget: tokens that may still be planned.  rows: requests that may still be added."""

    def __init__(self, budget: int, rows: int) -> None:
        self.budget = budget
        self.rows = rows
        self._slots: list[Counts] = []
        self._tokens: list[Counts] = []
        self._admitted: list[AdmittedRequest] = []
        self._growths: list[Growth] = []
        self._ops: list[KvOp] = []
        self._fresh: list[int] = []
        self._blocks: list[PageBlock] = []

    @property
    def empty(self) -> bool:
        """Nothing is computed and nobody enters: not worth a step."""
        return not self._admitted and not any(len(slots) for slots in self._slots)

    def add(self, slots: Counts, tokens: Counts, allocations: Sequence[Allocation]) -> None:
        """Rows of requests that run already."""
        self._slots.append(slots)
        self._tokens.append(tokens)
        for allocation in allocations:
            self._growths.extend(allocation.growths)
            self._ops.extend(allocation.ops)
        self.budget -= int(tokens.sum())
        self.rows -= len(slots)

    def add_blocks(self, blocks: Sequence[PageBlock]) -> None:
        """Pages of rows."""
        self._blocks.extend(blocks)

    def admit(self, request: AdmittedRequest, tokens: int, allocation: Allocation) -> None:
        """A request that enters its slot, with a row if it has tokens to compute; its page
        tables are sent whole."""
        self._admitted.append(request)
        self._fresh.append(request.slot)
        self._ops.extend(allocation.ops)
        if tokens:
            self.add(np.array([request.slot]), np.array([tokens]), ())

    def seal(self, state: CoreState) -> StepPlan:
        """The plan.  Counts of its slots move on as if the step had been computed."""
        table = state.slots
        slots = _joined(self._slots)
        new = _joined(self._tokens)
        computed, known = table.planned[slots], table.known[slots]
        ends = computed + new
        wants = (ends >= known) & (known < table.limit[slots])
        pool = table.pooled[slots] & (ends >= known)
        draft_ids: list[int] = []
        drafts = np.zeros(len(slots), np.int32)
        if state.config.max_drafts:
            drafts = np.maximum(ends - known, 0).astype(np.int32)
        if state.config.max_drafts and drafts.any():
            for slot, count in zip(slots.tolist(), drafts.tolist(), strict=True):
                draft_ids.extend(table.drafts[slot][:count])
        used = {"drafts": bool(draft_ids), "pooling": bool(pool.any())}
        state.last_step += 1
        plan = StepPlan(
            step_id=state.last_step,
            slots=slots.astype(np.int32),
            generations=table.generation[slots],
            num_new=new.astype(np.int32),
            computed=computed.astype(np.int32),
            wants_logits=wants,
            admitted=tuple(self._admitted),
            released=tuple(state.released),
            pages=self._page_updates(state),
            kv_ops=tuple(self._ops),
            draft_counts=drafts,
            draft_ids=np.array(draft_ids, np.int32) if draft_ids else empty_i32(),
            drafts_wanted=state.config.max_drafts,
            rows_to_pool=pool if used["pooling"] else None,
            features=frozenset(name for name, there in used.items() if there),
        )
        state.released.clear()
        table.planned[slots] = ends
        table.known[slots] = known + wants
        table.in_flight[slots] += 1
        if state.config.max_drafts:
            table.num_drafts[slots] = 0
        return plan

    def _page_updates(self, state: CoreState) -> tuple[PageUpdates, ...]:
        kv = state.kv
        rows: list[list[_Entry]] = [[] for _ in range(kv.num_groups)]
        for growth in (*kv.trimming.take(), *self._growths):
            rows[growth.group].append((growth.slot, growth.start, growth.ids, False))
        for group, own in enumerate(rows):
            for slot in self._fresh:
                own.append((slot, 0, kv.tables[group, slot, : kv.held[group, slot]].tolist(), True))
        return tuple(
            _ragged(own, [block for block in self._blocks if block.group == group])
            for group, own in enumerate(rows)
        )


def _joined(parts: Sequence[Counts]) -> Counts:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


NO_UPDATES = PageUpdates(
    slots=empty_i32(),
    starts=empty_i32(),
    counts=empty_i32(),
    ids=empty_i32(),
    replace=np.zeros(0, np.bool_),
)


def page_updates(groups: int, blocks: Sequence[PageBlock]) -> tuple[PageUpdates, ...]:
    """One entry per group."""
    return tuple(_ragged([], [b for b in blocks if b.group == group]) for group in range(groups))


def _ragged(rows: Sequence[_Entry], blocks: Sequence[PageBlock]) -> PageUpdates:
    if not rows and not blocks:
        return NO_UPDATES
    if not rows and len(blocks) == 1:
        return PageUpdates(
            slots=blocks[0].slots.astype(np.int32),
            starts=blocks[0].starts.astype(np.int32),
            counts=blocks[0].counts.astype(np.int32),
            ids=blocks[0].ids,
            replace=np.zeros(len(blocks[0].slots), np.bool_),
        )

    def column(values: list[int], more: list[npt.NDArray[np.integer]]) -> I32:
        return np.concatenate([np.array(values, np.int32), *more], dtype=np.int32)

    return PageUpdates(
        slots=column([row[0] for row in rows], [block.slots for block in blocks]),
        starts=column([row[1] for row in rows], [block.starts for block in blocks]),
        counts=column([len(row[2]) for row in rows], [block.counts for block in blocks]),
        ids=column([p for row in rows for p in row[2]], [block.ids for block in blocks]),
        replace=np.array(
            [row[3] for row in rows] + [False] * sum(len(b.slots) for b in blocks), np.bool_
        ),
    )
