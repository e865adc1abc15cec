"""Steps that equal the one before, at the price of a few array operations.

Most steps of an engine are of one kind: every running request computes one token and no drafts,
nobody comes and nobody leaves, and if anybody waits there is no room for the first in line.  Their
plans differ in nothing but `computed` and, now and then, some pages.  What is the same is kept
here, in row order; counts by slot move on by adding a mask over the whole table, which needs no
gathering.

    general step  ->  `Steady.after` looks whether the next ones can be of this kind
    `plan`        ->  the next step, or None: something happened, the scheduler must look
    `absorb`      ->  its outputs, or None: something ended, the updater must look

Neither has an effect when it returns None, so that the general path takes over from exactly
the state that it knows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from framework.contracts.messages import EngineOutputs, EngineStats
from framework.contracts.step import I32, StepPlan, empty_i32
from framework.core.step_draft import NO_UPDATES, page_updates

if TYPE_CHECKING:
    from framework.contracts.step import PageUpdates, StepResult
    from framework.core.state import CoreState

Fixed = TypeVar("Fixed", I32, npt.NDArray[np.float64], npt.NDArray[np.bool_])
NO_FEATURES: frozenset[str] = frozenset()


class Steady:
    """A run of equal steps over the rows of one plan."""

    def __init__(self, state: CoreState, plan: StepPlan, clock: Callable[[], float]) -> None:
        table, self._state, self._clock = state.slots, state, clock
        self.slots, self._generations = plan.slots, plan.generations
        self._own = slots = plan.slots.astype(np.int64)
        rows = len(slots)
        self._rows = rows
        # planned, known and in_flight rise with each plan; what its result moves are in_flight,
        # length and confirmed.
        self._begun, self._over = table.counts[:3], table.counts[2:]
        self._rise = np.zeros_like(self._begun)
        self._rise[:, slots] = 1
        self._fall = self._rise * np.array([[-1], [1], [1]])
        self._all_tokens = table.tokens.reshape(-1)
        self._ones = _fixed(np.ones(rows, np.int32))
        self._wants = _fixed(np.ones(rows, np.bool_))
        self._zeros = _fixed(np.zeros(rows, np.int32))
        self._offsets = _fixed(np.arange(rows + 1, dtype=np.int32))
        self._each = self._offsets.tobytes()  # compared so, which is several times cheaper
        self._ids: tuple[str, ...] = tuple(table.ids[slots].tolist())
        self._cached = _fixed(table.cached[slots])
        self._waited = _fixed(table.waited[slots])
        self._computed: I32 = table.planned[slots].astype(np.int32)
        self._ends: npt.NDArray[np.int64] | None = None  # where the next token of each row lies
        stop_ids = table.stop_ids[slots]
        self._stop_ids = stop_ids if (stop_ids >= 0).any() else None
        many = table.many_stop_ids
        self._many_stop_ids = [(r, many[s]) for r, s in enumerate(slots.tolist()) if s in many]
        self._no_pages: tuple[PageUpdates, ...] = (NO_UPDATES,) * state.kv.num_groups
        # Steps until a request has computed all that it may, and until it has all tokens.
        self._plans_left = int((table.cap[slots] - table.planned[slots]).min())
        self._ends_left = 0
        self._room: npt.NDArray[np.int64] = state.kv.room[slots]
        self._until_page = int((self._room - table.planned[slots]).min())
        self._unit = state.kv.unit
        # No slot is free, or the step has no room: as long as nobody leaves.
        most = min(state.config.active_limit, state.config.max_num_batched_tokens)
        self._full = not table.free or rows >= most
        self._until_name = 0
        self._stats: EngineStats | None = None
        self._drafts_wanted = state.config.max_drafts

    @classmethod
    def after(cls, state: CoreState, plan: StepPlan, clock: Callable[[], float]) -> Steady | None:
        """What follows `plan`, if the steps to come can be of this kind."""
        quiet = not state.order_changed and _quiet(state)
        if (
            not quiet
            or not state.queue.stands_still(clock)
            or plan.num_rows != len(state.running)
            or not plan.wants_logits.all()
            or state.slots.scored[plan.slots].any()  # results with more than tokens
            or len(plan.draft_ids)
        ):
            return None
        if plan.num_rows > min(state.config.max_num_batched_tokens, state.config.active_limit):
            return None
        return cls(state, plan, clock)

    def _nobody_enters(self) -> bool:
        """Those who wait would not get a slot in this step either."""
        state = self._state
        if len(state.requests) == self._rows:
            return True
        return state.queue.stands_still(self._clock) and (self._full or state.still_stuck)

    def plan(self) -> StepPlan | None:
        """The next step."""
        state = self._state
        if state.order_changed or self._plans_left <= 0 or not _quiet(state):
            return None
        if not self._nobody_enters():
            return None
        if self._drafts_wanted and state.slots.num_drafts.any():
            return None
        pages = self._no_pages
        if self._until_page <= 0:
            if len(state.queue) and not self._full:
                return None  # the first in line may fit once the rows have taken their pages
            grown = self._grow()
            if grown is None:
                return None
            pages = grown
        self._until_page -= 1
        self._plans_left -= 1
        state.last_step += 1
        computed = self._computed
        self._computed = computed + self._ones
        self._begun += self._rise
        return StepPlan(
            step_id=state.last_step,
            slots=self.slots,
            generations=self._generations,
            num_new=self._ones,
            computed=computed,
            wants_logits=self._wants,
            pages=pages,
            draft_counts=self._zeros,
            draft_ids=empty_i32(),
            drafts_wanted=self._drafts_wanted,
            features=NO_FEATURES,
        )

    def _grow(self) -> tuple[PageUpdates, ...] | None:
        """Pages for the rows whose last one is full."""
        kv = self._state.kv
        rows = np.flatnonzero(self._room <= self._computed)
        blocks = kv.reserve_many(self._own[rows], self._computed[rows].astype(np.int64) + 1)
        if blocks is None:
            return None
        self._room[rows] = kv.room[self._own[rows]]
        self._until_page = int((self._room - self._computed).min())
        self._stats = None
        return page_updates(kv.num_groups, blocks)

    def forget_stats(self) -> None:
        """Pages were taken or given back from outside of steps."""
        self._stats = None

    def made(self, plan: StepPlan) -> bool:
        """Whether `plan` is one of these steps."""
        return plan.num_new is self._ones

    def _begin(self) -> npt.NDArray[np.int64]:
        """When the first step of the run ends, those that were in flight before it have."""
        table, slots = self._state.slots, self._own
        length = table.length[slots]
        self._ends_left = int((table.limit[slots] - length).min()) - 1
        self._until_name = int((self._unit - table.confirmed[slots] % self._unit).min())
        return slots * table.tokens.shape[1] + length

    def absorb(self, plan: StepPlan, result: StepResult) -> EngineOutputs | None:
        """What the step brought."""
        state, tokens = self._state, result.token_ids
        if self._ends is None:
            self._ends = self._begin()
        if self._ends_left <= 0 or state.order_changed or len(tokens) != self._rows:
            return None
        if state.ended or not _plain(result) or result.token_offsets.tobytes() != self._each:
            return None
        if self._stop_ids is not None and (self._stop_ids == tokens[:, None]).any():
            return None
        many = self._many_stop_ids
        if many and any(tokens.item(row) in ids for row, ids in many):
            return None
        self._all_tokens[self._ends] = tokens
        # Before any count moves: where it fails, the updater does the same again.
        if self._until_name <= 1 and not self._name(plan.computed + self._ones):
            return None
        self._ends_left -= 1
        state.done_step = plan.step_id
        self._ends += 1
        self._over += self._fall
        self._until_name -= 1
        if self._stats is None:
            self._stats = state.stats()
        return EngineOutputs(
            step_id=plan.step_id,
            request_ids=self._ids,
            token_offsets=self._offsets,
            token_ids=tokens,
            cached=self._cached,
            waited=self._waited,
            num_computed=self._rows,
            stats=self._stats,
        )

    def _name(self, confirmed: I32) -> bool:
        """Commit the rows whose page has become full; False if a cache manager failed."""
        state, over = self._state, confirmed % self._unit
        rows = np.flatnonzero(over == 0)
        own = self._own[rows]
        requests = [state.slots.requests[slot] for slot in own.tolist()]
        self._stats = None  # pages that are read no more are given back
        failed = state.kv.commit_many(
            [r for r in requests if r is not None],
            own,
            state.slots.tokens,
            confirmed[rows].astype(np.int64),
        )
        self._until_name = self._unit - int(over.max()) + 1  # this step is counted afterwards
        return not failed


def _quiet(state: CoreState) -> bool:
    """Nobody leaves, loads or was told to stop, and no participant must be asked."""
    moves = state.loading or state.released or state.kv.trimming.untold or state.fence.busy
    return not (moves or state.paused or state.watched)


def _plain(result: StepResult) -> bool:
    """Tokens, and nothing else.  Where a field is not of its type, the updater says so."""
    try:
        return not (
            result.errors
            or result.logprobs is not None
            or result.prompt_logprobs
            or result.pooled
            or len(result.invalid_pages)
            or len(result.draft_ids)
            or result.attachments
        )
    except Exception:
        return False


def _fixed(array: Fixed) -> Fixed:
    """Shared by many plans: nobody may write to it."""
    array.flags.writeable = False
    return array
