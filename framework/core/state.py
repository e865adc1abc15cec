"""The state that planning and updating share: slots, pages, queue, and how a request leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from framework.contracts.messages import EngineStats, Finished, FinishReason
from framework.core.counters import Counters
from framework.core.fences import Fence
from framework.core.policies import keeps_account
from framework.core.queue import WaitingQueue
from framework.core.request import Request, Status
from framework.core.tenants import Tenants
from framework.errors import IntegrityError

if TYPE_CHECKING:
    from framework.contracts.participant import Refuse
    from framework.contracts.scheduling_policy import SchedulingPolicy
    from framework.contracts.step import StepPlan
    from framework.core.config import CoreConfig
    from framework.core.kv.manager import KVManager
    from framework.core.kv.prefix import Match
    from framework.core.participants import ParticipantHub
    from framework.core.slots import SlotTable
    from framework.core.steady import Steady


@dataclass(frozen=True, slots=True)
class Ended:
    """A request that ended without a row in the step: refused, aborted or overdue.  timed_out,
    refused: as in Finished."""

    request: Request
    reason: FinishReason
    error: str | None
    timed_out: bool
    refused: bool

    def finished(self, row: int) -> Finished:
        """As it is told, in output row `row`."""
        return Finished(
            row=row,
            reason=self.reason,
            error=self.error,
            timed_out=self.timed_out,
            refused=self.refused,
        )


@dataclass(frozen=True, slots=True)
class Loading:
    """A request whose pages are filled from elsewhere: tokens hit here, tokens that were offered
    with them (more than that cannot arrive, there are no pages for it), and the offer."""

    request: Request
    hit: int
    most: int
    arrived: Callable[[], int | Refuse | None]


@dataclass(slots=True)
class CoreState:
    """requests: all that have not ended.  watched: how many of them a participant attends.
    running: slots, unordered.  loading: by slot.  released: slots that the runner has not been
    told of yet.  last_step, done_step: ids of the newest plan and of the newest finished one.
    pausing: until `resume`.  asleep: the level of sleep, 0 is awake (`sleep.py`).
    stuck: for whom there were no pages when the line was last looked at, and how often pages had
    changed by then."""

    config: CoreConfig
    policy: SchedulingPolicy
    slots: SlotTable
    kv: KVManager
    hub: ParticipantHub
    queue: WaitingQueue = field(init=False)
    fence: Fence = field(default_factory=Fence)
    requests: dict[str, Request] = field(default_factory=dict)
    watched: int = 0
    tenants: Tenants = field(default_factory=Tenants)
    running: list[int] = field(default_factory=list)
    loading: dict[int, Loading] = field(default_factory=dict)
    order_changed: bool = True
    released: list[tuple[int, int]] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)
    last_step: int = 0
    done_step: int = 0
    pausing: bool = False
    asleep: int = 0
    steady: Steady | None = None
    stuck: tuple[Request, int] | None = None
    accounts: bool = field(init=False)

    def __post_init__(self) -> None:
        self.queue = WaitingQueue(self.policy, self.tenants, self.config.queue_timeout)
        self.accounts = keeps_account(self.policy)

    @property
    def paused(self) -> bool:
        """No more steps are planned."""
        return self.pausing or self.asleep > 0

    @property
    def steps_in_flight(self) -> int:
        return self.last_step - self.done_step

    @property
    def still_stuck(self) -> bool:
        """There are no pages for the first in line, as no page has changed since."""
        stuck = self.stuck
        return (
            stuck is not None
            and stuck[1] == self.kv.pool.changes
            and self.queue.first() is stuck[0]
        )

    def occupy(self, request: Request, match: Match, now: float) -> int:
        """The request takes a slot, with the pages of its match."""
        slot = self.slots.take(request, match.tokens)
        self.kv.admit(slot, match, request.input.encoder_tokens)
        if not request.has_run:
            request.cached = match.tokens
            request.waited = now - request.arrived_at
            if self.kv.caching and request.hit_limit():  # else nothing is looked for
                self.counters.prefix_queries += len(request.tokens)
            self.counters.prefix_hits += match.tokens
        self.slots.cached[slot] = request.cached or 0
        self.slots.waited[slot] = request.waited
        return slot

    def start(self, slot: int) -> None:
        """The request in `slot` is computed from now on."""
        request = self.slots.requests[slot]
        assert request is not None
        request.status = Status.RUNNING
        self.running.append(slot)
        self.order_changed = True

    def account(self, plan: StepPlan, now: float) -> None:
        """Tell the policy what was planned, each token once.  Were those told again that are
        computed again after a preemption, two that do not fit together could fall behind each
        other in turn, and lose to each other what they have, for ever."""
        if self.accounts:
            slots, table = plan.slots.astype(np.int64), self.slots
            ends, reached = table.planned[slots], table.reached[slots]
            table.reached[slots] = np.maximum(reached, ends)
            tokens = np.clip(ends - reached, 0, plan.num_new.astype(np.int64))
            self.policy.served(table.view(slots, now, self.tenants), tokens)

    def vacate(self, slot: int) -> Request:
        """The request leaves its slot; slot and pages are free once nothing in flight can
        touch them."""
        request = self.slots.requests[slot]
        assert request is not None
        pages = self.kv.leave(slot)
        holds = [hold.done for hold in self.hub.release(request)]
        self.released.append(self.slots.leave(slot))
        if self.loading.pop(slot, None) is None:
            self.running.remove(slot)
            self.order_changed = True
        in_flight = self.slots.in_flight[slot] > 0
        if holds:
            last = self.last_step if in_flight else self.done_step
            self.fence.hold([*holds, lambda: self.done_step >= last], pages)
            pages = []
        if in_flight:
            self.fence.put(self.last_step, slot, pages)
        else:
            self.kv.pool.release(pages)
            self.slots.give(slot)
        return request

    def preempt(self, slot: int, now: float) -> None:
        """Back to the line; it will be computed again (what is cached is hit)."""
        planned = int(self.slots.planned[slot])
        request = self.vacate(slot)
        request.in_vain = planned <= request.peak
        request.peak = max(request.peak, planned)
        request.preempted += 1
        request.waits_since = now
        self.counters.preemptions += 1
        self.queue.add(request, now)

    def finish(self, slot: int) -> Request:
        """The request in `slot` is done."""
        request = self.vacate(slot)
        self._forget(request)
        return request

    def _forget(self, request: Request) -> None:
        request.status = Status.FINISHED
        del self.requests[request.id]
        self.watched -= bool(request.attendants)
        self.tenants.leave(request.tenant)

    def end(
        self,
        request: Request,
        reason: FinishReason,
        error: str | None = None,
        *,
        timed_out: bool = False,
        refused: bool = False,
    ) -> None:
        """End a request wherever it is; it is reported with the next outputs."""
        if request.status in (Status.RUNNING, Status.LOADING):
            self.vacate(request.slot)
        else:
            self.queue.remove(request)
            if request.asked:
                self.hub.release(request)  # it has no pages that could be held
        self._forget(request)
        self.ended.append(Ended(request, reason, error, timed_out, refused))

    def refuse(self, request: Request, answer: Refuse) -> None:
        """End a request that a participant does not let run."""
        self.end(request, "error", answer.reason, refused=not answer.failed)

    def end_failed(self) -> None:
        """End the requests that a participant failed."""
        for request, sentence in self.hub.take_failed():
            if request.status is not Status.FINISHED:
                self.end(request, "error", sentence)

    def concerned(self, plan: StepPlan) -> list[Request]:
        """Requests that a plan computes or admits."""
        slots = dict.fromkeys([*plan.slots.tolist(), *(r.slot for r in plan.admitted)])
        requests = (self.slots.requests[slot] for slot in slots)
        return [request for request in requests if request is not None]

    def pass_fence(self) -> None:
        """Give back what waited for steps that have ended, or for participants."""
        slots, pages = self.fence.passed(self.done_step)
        for slot in slots:
            self.slots.give(slot)
        pages += self.fence.let_go()
        self.kv.pool.release(pages)

    def stats(self) -> EngineStats:
        pool = self.kv.pool
        return EngineStats(
            running=len(self.running),
            waiting=len(self.queue),
            pages_used=pool.num_pages - 1 - pool.num_free,
            pages_total=pool.num_pages - 1,
            prefix_queries=self.counters.prefix_queries,
            prefix_hits=self.counters.prefix_hits,
            prefix_evictions=pool.evictions,
            prefix_collisions=self.kv.prefix.collisions,
            pages_pinned=len(self.kv.pins),
            loading=len(self.loading),
            preemptions=self.counters.preemptions,
            drafted=self.counters.drafted,
            drafts=self.counters.drafts,
            accepted=tuple(self.counters.accepted),
            waiting_reasons=self.queue.waiting_reasons(),
        )

    def check_progress(self) -> None:
        """Raises IntegrityError where requests wait for nothing."""
        others = self.paused or self.running or self.loading or self.fence.num_held
        if self.queue.num_in_line and not others:
            raise IntegrityError(
                "requests wait and nothing runs, although pages are free",
                found=f"{self.queue.num_in_line} in line, {self.stats()}",
            )

    def check_integrity(self) -> None:
        """Every request, slot, page and hash is accounted for."""
        slots = [s for s, request in enumerate(self.slots.requests) if request is not None]
        if sorted([*self.running, *self.loading]) != slots:
            raise IntegrityError(
                "slots run or load that own no request, or the other way round",
                expected=slots,
                found=f"running {sorted(self.running)}, loading {sorted(self.loading)}",
            )
        if len(self.requests) != len(slots) + len(self.queue):
            raise IntegrityError(
                "requests were lost",
                expected=len(self.requests),
                found=f"{len(slots)} in slots, {len(self.queue)} waiting",
            )
        tokens = sum(len(request.input.tokens) for request in self.queue)
        if tokens != self.queue.num_tokens:
            raise IntegrityError("tokens that wait", expected=tokens, found=self.queue.num_tokens)
        watched = sum(bool(request.attendants) for request in self.requests.values())
        if watched != self.watched:
            raise IntegrityError("attended requests", expected=watched, found=self.watched)
        self.slots.check_integrity(self.fence.num_slots)
        self.kv.check_integrity(self.fence.pages())
