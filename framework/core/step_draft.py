"""A step while it is being planned, and its sealing into a `StepPlan`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from framework.contracts.step import I32, AdmittedRequest, PageUpdates, StepPlan

if TYPE_CHECKING:
    from framework.core.kv.manager import Growth
    from framework.core.state import CoreState


class StepDraft:
    """budget: tokens that may still be planned."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._slots: list[npt.NDArray[np.int64]] = []
        self._tokens: list[npt.NDArray[np.int64]] = []
        self._admitted: list[AdmittedRequest] = []
        self._growths: list[Growth] = []
        self._fresh: list[int] = []

    def add(
        self,
        slots: npt.NDArray[np.int64],
        tokens: npt.NDArray[np.int64],
        growths: Sequence[Growth],
    ) -> None:
        """Rows of requests that run already."""
        self._slots.append(slots)
        self._tokens.append(tokens)
        self._growths.extend(growths)
        self.budget -= int(tokens.sum())

    def admit(self, request: AdmittedRequest, tokens: int) -> None:
        """A row of a request that enters its slot; its page table is sent whole."""
        self._admitted.append(request)
        self._fresh.append(request.slot)
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
        updates = []
        for group in range(kv.num_groups):
            rows = [(g.slot, g.start, g.ids, False) for g in self._growths if g.group == group]
            for slot in self._fresh:
                rows.append((slot, 0, kv.tables[group, slot, : kv.held[slot]].tolist(), True))
            updates.append(_ragged(rows))
        return tuple(updates)


def _ragged(rows: Sequence[tuple[int, int, Sequence[int], bool]]) -> PageUpdates:
    def column(values: list[int]) -> I32:
        return np.array(values, np.int32)

    return PageUpdates(
        slots=column([row[0] for row in rows]),
        starts=column([row[1] for row in rows]),
        counts=column([len(row[2]) for row in rows]),
        ids=column([page for row in rows for page in row[2]]),
        replace=np.array([row[3] for row in rows], np.bool_),
    )
