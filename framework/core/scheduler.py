"""Which tokens of which requests are computed next.

There is no prefill or decode phase.  Each request has tokens that are known and tokens
that are computed, and a step lets the second catch up with the first.  Chunked prefill,
prefix hits, drafts and recomputation after a preemption are all cases of that one rule.

Running requests come first, in the policy's order, then waiting ones.  When pages are
lacking the last in order is preempted.  Since rows are planned from the front and victims
are taken from the back, a victim never has a row in the step: there is nothing to undo.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from framework.contracts.participant import Refuse, Wait
from framework.contracts.scheduling_policy import SchedulingPolicy
from framework.core.step_draft import StepDraft

if TYPE_CHECKING:
    from framework.contracts.step import StepPlan
    from framework.core.kv.manager import Growth
    from framework.core.request import Request
    from framework.core.state import CoreState

Counts = npt.NDArray[np.int64]


class Scheduler:
    """Plans steps over a `CoreState`."""

    def __init__(self, state: CoreState, clock: Callable[[], float] = time.monotonic) -> None:
        self._state = state
        self._clock = clock
        self._order: Counts = np.zeros(0, np.int64)
        # A policy that keeps no account pays nothing for it.
        self._accounts = type(state.policy).served is not SchedulingPolicy.served

    def schedule(self) -> StepPlan | None:
        """The next step, or None when there is nothing that could be computed now."""
        state, now = self._state, self._clock()
        state.pass_fence()
        for request in state.queue.overdue(now):
            state.end(request, "error", "the deadline passed while the request was waiting")
        state.queue.refresh(now)
        draft = StepDraft(state.config.max_num_batched_tokens)
        preempted = self._plan_running(draft, now)
        if not preempted:
            self._plan_waiting(draft, now)
        if draft.budget == state.config.max_num_batched_tokens:
            return None
        plan = draft.seal(state)
        if self._accounts:
            slots = plan.slots.astype(np.int64)
            state.policy.served(state.slots.view(slots, now), plan.num_new.astype(np.int64))
        return plan

    # Running requests

    def _plan_running(self, draft: StepDraft, now: float) -> bool:
        """Rows of running requests; True if one was preempted."""
        state = self._state
        if state.order_changed or not state.policy.keys_are_fixed:
            self._order = state.running_order(now)
            state.order_changed = False
        order = self._order
        if not len(order):
            return False
        take = self._within_budget(self._wanted(order), draft.budget)
        for index in np.flatnonzero(state.slots.attended[order] & (take > 0)).tolist():
            request = state.slots.requests[order[index]]
            assert request is not None
            take[index] = state.hub.limit(request, int(take[index]))
        before = state.counters.preemptions
        growths = self._reserve(order, take, now)
        rows = take > 0
        draft.add(order[rows], take[rows], growths)
        return state.counters.preemptions != before

    def _wanted(self, slots: Counts) -> Counts:
        """Tokens that each request could compute now."""
        table = self._state.slots
        target = np.minimum(table.known[slots] + table.num_drafts[slots], table.cap[slots])
        want: Counts = target - table.planned[slots]
        if self._state.config.max_drafts:
            # How many drafts will be accepted is unknown until the step has ended.
            want[table.in_flight[slots] > 0] = 0
        return want

    @staticmethod
    def _within_budget(want: Counts, budget: int) -> Counts:
        """The first get all they want; the one at the border gets what is left."""
        before = np.cumsum(want) - want
        granted: Counts = np.clip(budget - before, 0, want)
        return granted

    def _reserve(self, order: Counts, take: Counts, now: float) -> list[Growth]:
        """Pages for `take`, which is reduced in place where they cannot be had."""
        state = self._state
        held = state.kv.held[order] * state.kv.page_tokens
        lacking = (take > 0) & (state.slots.planned[order] + take > held)
        growths: list[Growth] = []
        last = len(order) - 1
        for index in np.flatnonzero(lacking).tolist():
            if index > last:
                break
            slot = int(order[index])
            tokens = int(state.slots.planned[slot] + take[index])
            while (grown := state.kv.reserve(slot, tokens)) is None:
                if self._pages_will_come(slot, tokens):
                    take[index] = 0
                    grown = []
                    break
                take[last] = 0
                state.preempt(int(order[last]), now)
                last -= 1
                if last < index:
                    grown = []
                    break
            growths.extend(grown)
        return growths

    def _pages_will_come(self, slot: int, tokens: int) -> bool:
        """Whether the pages are only behind the fence: then no one need be preempted."""
        state = self._state
        need = (state.kv.pages_for(tokens) - int(state.kv.held[slot])) * state.kv.num_groups
        coming = state.fence.num_pages_coming
        return coming > 0 and state.kv.pool.num_free + coming >= need

    # Waiting requests

    def _plan_waiting(self, draft: StepDraft, now: float) -> None:
        state = self._state
        while draft.budget > 0 and state.slots.free:
            request = state.queue.first()
            if request is None:
                return
            if self._may_run(request) and not self._start(request, draft):
                return

    def _may_run(self, request: Request) -> bool:
        """Ask the participants; a request that may not run is out of line afterwards."""
        state = self._state
        answer = state.hub.admit(request)
        if isinstance(answer, Wait):
            state.queue.put_aside(answer.wake, answer.reason)
            return False
        if isinstance(answer, Refuse):
            state.end(request, "error", answer.reason)
            return False
        return True

    def _start(self, request: Request, draft: StepDraft) -> bool:
        """Give the first in line a slot and its first tokens; False if it must stay in line."""
        state = self._state
        match = state.kv.match(request, request.hit_limit())
        refused = state.hub.external_prefix(request, match.tokens)
        if refused is not None:
            state.end(request, "error", refused.reason)
            return True
        whole = min(len(request.tokens), max(request.input.max_total - 1, 1)) - match.tokens
        tokens = min(whole, draft.budget)
        if tokens < whole and not state.config.enable_chunked_prefill:
            return False
        tokens = state.hub.limit(request, tokens)
        if tokens == 0:
            state.queue.put_aside(lambda: True, "limited by a participant")
            return True
        if not state.kv.fits(match, match.tokens + tokens):
            return False
        state.queue.pop_first()
        slot = state.occupy(request, match.tokens)
        state.kv.admit(slot, match)
        state.kv.reserve(slot, match.tokens + tokens)
        if request.cached is None:
            request.cached = match.tokens
            state.counters.prefix_queries += len(request.tokens)
            state.counters.prefix_hits += match.tokens
        draft.admit(request.admitted(int(state.slots.generation[slot])), tokens)
        return True
