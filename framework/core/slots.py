"""Counts of running requests, in arrays by slot, so that a decode step is a few array
operations however many requests run.

    tokens[s]   |0 ....... confirmed | ... planned | ... length | known |
                 in the cache,         in flight     token ids    expected from
                 ids certain                         present      steps in flight
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from framework.contracts.scheduling_policy import RequestArrays
from framework.errors import IntegrityError

if TYPE_CHECKING:
    from framework.contracts.step import I32
    from framework.core.request import Request

STOP_IDS = 4
"""Columns for ids that end a request, compared in every step: more than nearly all have."""
_NONE, _MANY = -1, -2  # no ids: nothing stands in a column, or the ids are kept elsewhere


class SlotTable:
    """Per slot s:

    generation: rises when the slot is released.  tokens: ids, int32 [slots, max_len].
    length: ids present.  known: ids present or sure to come from steps in flight.
    stop_ids: of requests with few; many_stop_ids: by slot, of others.
    planned: tokens whose computation was planned.  confirmed: computed for certain.
    reached: the most that were ever planned, also before a preemption; for policies that count.
    limit: prompt and output tokens at most.  cap: tokens that are ever computed (the last
    sampled one never is).  pooled: a vector is made of all of them.
    scored: log-probabilities of its tokens are wanted.  unscored: some of its prompt's are lacking.
    in_flight: steps in flight.  attended: a participant looks on.
    regains: tokens to compute again before anything is new, of a request that was preempted in
    vain; -1 of others.
    """

    def __init__(self, num_slots: int, max_len: int) -> None:
        self.num_slots = num_slots
        self.generation = np.zeros(num_slots, np.int32)
        self.tokens = np.empty((num_slots, max_len), np.int32)  # touched only where used
        # Rows of one array: those that move together do so in one operation.
        self.counts = np.zeros((5, num_slots), np.int64)
        self.planned, self.known, self.in_flight, self.length, self.confirmed = self.counts
        self.reached = np.zeros(num_slots, np.int64)
        self.regains = np.full(num_slots, -1, np.int64)
        self.limit = np.zeros(num_slots, np.int64)
        self.cap = np.zeros(num_slots, np.int64)
        self.pooled = np.zeros(num_slots, np.bool_)
        self.min_length = np.zeros(num_slots, np.int64)
        self.scored = np.zeros(num_slots, np.bool_)
        self.unscored = np.zeros(num_slots, np.bool_)
        self.attended = np.zeros(num_slots, np.bool_)
        self.arrival = np.zeros(num_slots, np.int64)
        self.arrived_at = np.zeros(num_slots, np.float64)
        self.priority = np.zeros(num_slots, np.int64)
        self.tenant = np.zeros(num_slots, np.int64)
        self.num_prompt = np.zeros(num_slots, np.int64)
        self.key = np.zeros(num_slots, np.float64)
        self.stop_ids = np.full((num_slots, STOP_IDS), _NONE, np.int32)
        self.many_stop_ids: dict[int, frozenset[int]] = {}
        self.num_drafts = np.zeros(num_slots, np.int64)
        self.drafts: list[list[int]] = [[] for _ in range(num_slots)]
        self.requests: list[Request | None] = [None] * num_slots
        self.ids = np.empty(num_slots, object)
        self.cached = np.zeros(num_slots, np.int32)
        self.waited = np.zeros(num_slots, np.float64)
        self.free = list(range(num_slots - 1, -1, -1))

    def take(self, request: Request, computed: int) -> int:
        """Give the request a free slot, with `computed` tokens already in the cache."""
        slot = self.free.pop()
        tokens = request.tokens
        count = len(tokens)
        request.slot = slot
        self.requests[slot] = request
        self.tokens[slot, :count] = tokens
        self.length[slot] = self.known[slot] = count
        self.planned[slot] = self.confirmed[slot] = computed
        self.reached[slot] = request.reached
        self.regains[slot] = request.peak if request.in_vain else -1
        entry = request.input
        self.limit[slot] = entry.max_total
        self.cap[slot] = request.cap
        self.pooled[slot] = entry.pooling is not None
        self.scored[slot] = entry.pooling is None and entry.sampling.logprobs is not None
        self.unscored[slot] = request.lacks_prompt_logprobs
        # A stop id counts once this many tokens exist before it.
        self.min_length[slot] = request.num_prompt + entry.sampling.min_tokens
        self.in_flight[slot] = 0
        self.attended[slot] = bool(request.attendants)
        self.arrival[slot], self.arrived_at[slot] = request.arrival, request.arrived_at
        self.priority[slot], self.tenant[slot] = entry.priority, request.tenant
        self.num_prompt[slot] = request.num_prompt
        self.key[slot] = request.key
        self.ids[slot] = entry.request_id
        self._set_stop_ids(slot, entry.stop_ids)
        return slot

    def _set_stop_ids(self, slot: int, ids: tuple[int, ...]) -> None:
        self.stop_ids[slot] = _NONE
        if len(ids) <= STOP_IDS:
            self.stop_ids[slot, : len(ids)] = ids
        else:
            self.stop_ids[slot] = _MANY
            self.many_stop_ids[slot] = frozenset(ids)

    def stops(self, slots: npt.NDArray[np.integer], tokens: I32) -> npt.NDArray[np.bool_]:
        """Which of the tokens, one of each of `slots`, are among the ids that end its request."""
        few = self.stop_ids[slots]
        found: npt.NDArray[np.bool_] = (few == tokens[:, None]).any(axis=1)
        if self.many_stop_ids:  # one request must not make the comparison wider for all
            for row in np.flatnonzero(few[:, 0] == _MANY).tolist():
                found[row] = int(tokens[row]) in self.many_stop_ids[int(slots[row])]
        return found

    def set_drafts(self, slot: int, drafts: list[int]) -> None:
        """Drafts to verify in the next step, as far as the request may still be computed."""
        self.drafts[slot] = drafts
        self.num_drafts[slot] = len(drafts)

    def leave(self, slot: int) -> tuple[int, int]:
        """The request leaves; returns (slot, generation it had).  `give` frees the slot."""
        request = self.requests[slot]
        assert request is not None
        request.tokens = self.tokens[slot, : self.length[slot]].copy()
        request.reached = int(self.reached[slot])
        request.slot = -1
        self.many_stop_ids.pop(slot, None)
        self.scored[slot] = self.unscored[slot] = False
        self.num_drafts[slot] = 0
        self.requests[slot] = None
        left = (slot, int(self.generation[slot]))
        self.generation[slot] += 1
        return left

    def view(
        self, slots: npt.NDArray[np.int64], now: float, tenants: Sequence[str]
    ) -> RequestArrays:
        """What a policy sees of the requests in `slots`."""
        return RequestArrays(
            arrival=self.arrival[slots],
            arrived_at=self.arrived_at[slots],
            priority=self.priority[slots],
            tenant=self.tenant[slots],
            prompt=self.num_prompt[slots],
            known=self.known[slots],
            limit=self.limit[slots],
            computed=self.planned[slots],
            now=now,
            tenant_names=tenants,
        )

    def give(self, slot: int) -> None:
        """The slot may be taken again."""
        self.free.append(slot)

    def check_integrity(self, fenced: int) -> None:
        """Every slot is owned, free, or behind a fence (`fenced` of them)."""
        owned = [s for s, request in enumerate(self.requests) if request is not None]
        if len(owned) + len(self.free) + fenced != self.num_slots:
            raise IntegrityError(
                "slots were lost",
                expected=self.num_slots,
                found=f"{len(owned)} owned, {len(self.free)} free, {fenced} fenced",
            )
        if len(set(self.free)) != len(self.free) or set(self.free) & set(owned):
            raise IntegrityError("a slot is free twice, or free and owned")
        s = np.array(owned, np.int64)
        ordered = (
            (self.confirmed[s] <= self.planned[s])
            & (self.length[s] <= self.known[s])
            & (self.known[s] <= self.limit[s])
            & (self.in_flight[s] >= 0)
        )
        if not ordered.all():
            raise IntegrityError("counts of a slot are out of order", found=s[~ordered].tolist())
