"""Which tokens of which requests are computed next.

There is no prefill or decode phase.  Each request has tokens that are known and tokens
that are computed, and a step lets the second catch up with the first.  Chunked prefill,
prefix hits, drafts and recomputation after a preemption are all cases of that one rule.

Running requests come first, in the policy's order, then waiting ones.  When pages are
lacking the last in order is preempted.  Since rows are planned from the front and victims
are taken from the back, a victim never has a row in the step: there is nothing to undo.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from framework.core.admission import Admitter
from framework.core.order import running_order
from framework.core.steady import Steady
from framework.core.step_draft import StepDraft

if TYPE_CHECKING:
    from framework.contracts.step import StepPlan
    from framework.core.kv.allocation import Allocation
    from framework.core.state import CoreState

Counts = npt.NDArray[np.int64]


class Scheduler:
    """Plans steps over a `CoreState`."""

    def __init__(self, state: CoreState, clock: Callable[[], float]) -> None:
        self._state = state
        self._clock = clock
        self._order: Counts = np.zeros(0, np.int64)
        self._admitter = Admitter(state)
        # Policies whose keys move must be asked in every step, and room ahead is looked for in
        # every step.  Where there may be drafts, a step is planned when that before it has told
        # whether there are any.
        drafts = state.config.max_drafts > 0
        self._may_be_steady = (
            state.policy.keys_are_fixed
            and not state.accounts
            and not state.config.lookahead
            and not (drafts and state.config.loop_depth > 1)
        )

    def schedule(self) -> StepPlan | None:
        """The next step, or None when there is nothing that could be computed now."""
        state = self._state
        if state.steady is not None:
            plan = state.steady.plan()
            if plan is not None:
                return plan
            state.steady = None
        now, settled = self._clock(), not state.order_changed
        state.pass_fence()
        for request, reason in state.queue.overdue(now):
            state.end(request, "error", reason, timed_out=True)
        if state.paused:
            return None
        state.queue.refresh(now)
        self._admitter.take_arrivals()
        draft = StepDraft(state.config.max_num_batched_tokens, state.config.active_limit)
        short = self._plan_running(draft, now)
        if not short:
            self._admitter.plan_waiting(draft, self._share(), now)
        if draft.empty:
            return None
        plan = draft.seal(state)
        # With somebody coming or leaving in every step, looking ahead would be in vain.
        if settled and self._may_be_steady:
            state.steady = Steady.after(state, plan, self._clock)
        state.account(plan, now)
        return plan

    def _plan_running(self, draft: StepDraft, now: float) -> bool:
        """Rows of running requests; True if pages were lacking, so that nobody may start."""
        state = self._state
        if state.order_changed or not state.policy.keys_are_fixed:
            self._order = running_order(state, now)
            state.order_changed = False
        order = self._order
        if not len(order):
            return False
        want = np.minimum(self._wanted(order), draft.budget)
        if state.config.max_drafts:
            want = self._drafts_last(order, want, draft.budget)
        needed = None if state.config.enable_chunked_prefill else self._whole(order)
        attended: list[int] = []
        if state.watched:
            attended = np.flatnonzero(state.slots.attended[order] & (want > 0)).tolist()
        for index in attended:
            request = state.slots.requests[order[index]]
            assert request is not None
            start = int(state.slots.planned[order[index]])
            least = 1 if needed is None else int(needed[index])
            want[index] = state.hub.limit(request, start, int(want[index]), least)
        # After the limits, so that what one may not use others get.
        take = self._within_budget(want, draft, needed)
        before = state.counters.preemptions
        allocations, short = self._reserve(draft, order, take, now)
        rows = take > 0
        if rows.all():
            draft.add(order, take, allocations)
        else:
            draft.add(order[rows], take[rows], allocations)
        return short or state.counters.preemptions != before

    def _wanted(self, slots: Counts) -> Counts:
        """Tokens that each request could compute now."""
        table = self._state.slots
        target = table.known[slots]
        if self._state.config.max_drafts:
            target = target + table.num_drafts[slots]
        target = np.minimum(target, table.cap[slots])
        planned = table.planned[slots]
        want: Counts = target - planned
        if self._state.config.max_drafts:
            # How many drafts will be accepted is unknown until the step has ended.
            want[table.in_flight[slots] > 0] = 0
        share = self._share()
        if share is not None:
            want = np.minimum(want, share)
        return self._state.kv.borders.clip(planned, want)

    def _drafts_last(self, slots: Counts, want: Counts, budget: int) -> Counts:
        """Drafts get of the budget what nobody needs for a token that is certain."""
        certain = self._certain(slots, want)
        drafts = want - certain
        spare = budget - int(np.minimum(certain, 1).sum())
        before = np.cumsum(drafts) - drafts
        granted: Counts = certain + np.clip(spare - before, 0, drafts)
        return granted

    def _certain(self, slots: Counts, want: Counts) -> Counts:
        """Of the tokens that each would compute those that are no drafts.  With drafts in flight
        more is planned than known."""
        table = self._state.slots
        certain: Counts = np.clip(table.known[slots] - table.planned[slots], 0, want)
        return certain

    def _whole(self, slots: Counts) -> Counts:
        """Without chunked prefill: what a row must compute, or it computes nothing.  More than
        one token if what should have come from elsewhere did not."""
        table = self._state.slots
        whole: Counts = np.minimum(table.known[slots], table.cap[slots]) - table.planned[slots]
        return self._state.kv.borders.clip(table.planned[slots], whole)

    def _share(self) -> int | None:
        """Most tokens of one request in a step while others want some too."""
        state = self._state
        threshold = state.config.long_prefill_threshold
        others = len(state.running) + state.queue.num_in_line
        if threshold is None or others <= 1:
            return None
        if threshold == "auto":
            table, running = state.slots, np.array(state.running, np.int64)
            left = table.known[running] - table.planned[running]
            many = int((left > 1).sum()) + min(state.queue.num_in_line, len(table.free))
            return max(state.config.max_num_batched_tokens // max(many, 1), state.kv.unit)
        return threshold

    @staticmethod
    def _within_budget(want: Counts, draft: StepDraft, needed: Counts | None) -> Counts:
        """The first get all they want; the one at the border gets what is left.  needed: less
        is of no use to a row; None: all is."""
        granted = want
        ends = np.cumsum(want)
        if needed is not None:
            left = draft.budget
            for row, (most, least) in enumerate(zip(want.tolist(), needed.tolist(), strict=True)):
                granted[row] = min(most, left) if least <= min(most, left) else 0
                left -= int(granted[row])
        elif len(ends) and ends[-1] > draft.budget:
            granted = np.minimum(np.maximum(draft.budget - (ends - want), 0), want)
        if len(granted) > draft.rows:
            granted[np.flatnonzero(granted)[draft.rows :]] = 0
        return granted

    def _reserve(
        self, draft: StepDraft, order: Counts, take: Counts, now: float
    ) -> tuple[list[Allocation], bool]:
        """Pages for `take`, which is reduced in place where they cannot be had; True if one
        waits for pages behind the fence."""
        state = self._state
        # Room ahead, and for drafts, is taken where it is free: for that nobody is preempted.
        ends = state.slots.planned[order] + take
        ahead = np.minimum(ends + state.config.lookahead, state.slots.cap[order])
        if self._reserve_all(draft, order, take, np.maximum(ends, ahead)):
            return [], False
        if state.config.max_drafts or state.config.lookahead:
            np.copyto(take, self._certain(order, take))
            ends = state.slots.planned[order] + take
            if self._reserve_all(draft, order, take, ends):
                return [], False
        lacking = np.flatnonzero((ends > state.kv.room[order]) & (take > 0))
        allocations: list[Allocation] = []
        last, trimmed = len(order) - 1, False
        for index in lacking.tolist():
            if index > last:
                break
            slot = int(order[index])
            tokens = int(state.slots.planned[slot] + take[index])
            while (allocation := state.kv.reserve(slot, tokens)) is None:
                if not trimmed:
                    trimmed = True
                    state.kv.trimming.trim_all(order, state.slots.confirmed[order])
                    continue
                if self._pages_will_come(slot, tokens) or (last == index and self._kept_elsewhere):
                    # What comes is for this one: nobody behind it may take pages meanwhile.
                    take[lacking[lacking >= index]] = 0
                    return allocations, True
                take[last] = 0
                state.preempt(int(order[last]), now)
                last -= 1
                if last < index:
                    break
            if allocation is not None:
                allocations.append(allocation)
        return allocations, False

    def _reserve_all(self, draft: StepDraft, order: Counts, take: Counts, ends: Counts) -> bool:
        """Room for so many tokens of each row that takes some; False, without effect, if pages
        are lacking."""
        kv = self._state.kv
        lacking = np.flatnonzero((ends > kv.room[order]) & (take > 0))
        blocks = kv.reserve_many(order[lacking], ends[lacking]) if len(lacking) else ()
        if blocks:
            draft.add_blocks(blocks)
        return blocks is not None

    @property
    def _kept_elsewhere(self) -> bool:
        """Somebody's pages are being filled, or a participant keeps some: then one that lacks a
        page and has nobody behind it waits with what it has.  Were it preempted for one that
        loads, that one would lose its pages to it in turn as soon as it runs, and so for ever."""
        state = self._state
        return bool(state.loading) or state.fence.num_held > 0

    def _pages_will_come(self, slot: int, tokens: int) -> bool:
        """Whether the pages that are lacking are only behind the fence: then no one need be
        preempted."""
        state = self._state
        there = state.kv.pool.num_free + state.fence.num_pages_coming
        return there >= state.kv.lacking(slot, tokens)
