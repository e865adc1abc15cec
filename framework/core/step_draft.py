"""A step while it is being planned, and its sealing into a `StepPlan`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from framework.contracts.step import I32, AdmittedRequest, KvOp, PageUpdates, StepPlan

if TYPE_CHECKING:
    from framework.core.kv.manager import Allocation, Growth
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
        slots = np.concatenate(self._slots) if self._slots else np.zeros(0, np.int64)
        new = np.concatenate(self._tokens) if self._tokens else np.zeros(0, np.int64)
        computed = table.planned[slots]
        ends = computed + new
        drafts = np.maximum(ends - table.known[slots], 0)
        wants = (ends >= table.known[slots]) & (table.known[slots] < table.limit[slots])
        draft_ids: list[int] = []
        if drafts.any():
            for slot, count in zip(slots.tolist(), drafts.tolist(), strict=True):
                draft_ids.extend(table.drafts[slot][:count])
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
            draft_counts=drafts.astype(np.int32),
            draft_ids=np.array(draft_ids, np.int32),
            drafts_wanted=state.config.max_drafts,
            features=frozenset(("drafts",)) if draft_ids else frozenset(),
        )
        state.released.clear()
        table.planned[slots] = ends
        table.known[slots] += wants
        table.in_flight[slots] += 1
        table.num_drafts[slots] = 0
        return plan

    def _page_updates(self, state: CoreState) -> tuple[PageUpdates, ...]:
        kv = state.kv
        rows: list[list[_Entry]] = [[] for _ in range(kv.num_groups)]
        for growth in (*kv.take_drops(), *self._growths):
            rows[growth.group].append((growth.slot, growth.start, growth.ids, False))
        for group, own in enumerate(rows):
            for slot in self._fresh:
                own.append((slot, 0, kv.tables[group, slot, : kv.held[group, slot]].tolist(), True))
        return tuple(_ragged(own) for own in rows)


def _ragged(rows: Sequence[_Entry]) -> PageUpdates:
    def column(values: list[int]) -> I32:
        return np.array(values, np.int32)

    return PageUpdates(
        slots=column([row[0] for row in rows]),
        starts=column([row[1] for row in rows]),
        counts=column([len(row[2]) for row in rows]),
        ids=column([page for row in rows for page in row[2]]),
        replace=np.array([row[3] for row in rows], np.bool_),
    )
