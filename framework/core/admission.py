"""How waiting requests get a slot, and those that load from elsewhere begin to run."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from framework.contracts.participant import External, Refuse, Wait
from framework.core.kv.claims import claim_of, claim_of_newcomer, newly_shared
from framework.core.request import Status
from framework.core.state import Loading
from framework.errors import PluginError
from framework.plugins.blame import in_one_line

if TYPE_CHECKING:
    from framework.core.kv.prefix import Match
    from framework.core.request import Request
    from framework.core.state import CoreState
    from framework.core.step_draft import StepDraft


logger = logging.getLogger("framework.admission")


class Admitter:
    """Works on the waiting line of a `CoreState`."""

    def __init__(self, state: CoreState) -> None:
        self._state = state
        pages = state.kv.pool.num_pages - 1
        self._watermark = int(pages * state.config.watermark)

    def take_arrivals(self) -> None:
        """Start requests whose pages have been filled from elsewhere."""
        state = self._state
        for slot, loading in list(state.loading.items()):
            answer = loading.arrived()
            if isinstance(answer, Refuse):
                state.refuse(loading.request, answer)
            elif answer is not None:
                computed = loading.hit + max(answer, 0)
                if computed > loading.most:
                    computed = state.kv.borders.before(loading.most)
                with self._ending(loading.request):
                    state.kv.arrive(loading.request, slot, state.slots.tokens[slot], computed)
                    del state.loading[slot]
                    state.slots.planned[slot] = state.slots.confirmed[slot] = computed
                    state.start(slot)

    @contextmanager
    def _ending(self, request: Request) -> Iterator[None]:
        """End the request if a plugin fails that is asked about it."""
        try:
            yield
        except PluginError as error:
            logger.exception("request %s ends", request.id)
            self._state.end(request, "error", in_one_line(error))

    def plan_waiting(self, draft: StepDraft, share: int | None, now: float) -> None:
        """Admit from the front of the line as long as there is room for the first."""
        state = self._state
        state.stuck = None
        while draft.budget > 0 and draft.rows > 0 and state.slots.free:
            request = state.queue.first()
            if request is None:
                return
            if not self._may_run(request):
                continue
            with self._ending(request):
                if not self._start(request, draft, share, now):
                    state.stuck = (request, state.kv.pool.changes)
                    return

    def _may_run(self, request: Request) -> bool:
        """Ask the participants; a request that may not run is out of line afterwards."""
        state = self._state
        answer = state.hub.admit(request)
        if isinstance(answer, Wait):
            state.queue.put_aside(answer.wake, answer.reason)
            return False
        if isinstance(answer, Refuse):
            state.refuse(request, answer)
            return False
        return True

    def _start(self, request: Request, draft: StepDraft, share: int | None, now: float) -> bool:
        """Give the first in line a slot and its first tokens; False if it must stay in line."""
        state = self._state
        match = state.kv.match(request, request.hit_limit())
        offer = state.hub.external_prefix(request, match.tokens)
        if isinstance(offer, Refuse):
            state.refuse(request, offer)
            return True
        if offer.arrived is not None:
            return self._load(request, match, offer, draft, now)
        # What a participant has put into the cache counts as computed from the start.
        start = self._reach(request, match, offer, draft.budget)
        whole = request.num_computable - start
        tokens = min(whole, draft.budget)
        least = 1 if state.config.enable_chunked_prefill else whole
        if tokens < least:
            return False
        if share is not None:
            tokens = min(tokens, share)
        tokens = int(state.kv.borders.clip(np.array(start), np.array(tokens)))
        tokens = state.hub.limit(request, start, tokens, least)
        if tokens <= 0:
            state.queue.put_aside(lambda: True, "limited by a participant")
            return True
        if not self._fits(request, match, start + tokens):
            return False
        state.queue.pop_first()
        slot = state.occupy(request, match, now)
        state.slots.planned[slot] = state.slots.confirmed[slot] = start
        state.start(slot)
        ahead = min(start + tokens + state.config.lookahead, request.cap)
        allocation = state.kv.reserve(slot, max(ahead, start + tokens))
        if allocation is None:
            allocation = state.kv.reserve(slot, start + tokens)
        assert allocation is not None
        draft.admit(request.admitted(int(state.slots.generation[slot])), tokens, allocation)
        return True

    def _load(
        self, request: Request, match: Match, offer: External, draft: StepDraft, now: float
    ) -> bool:
        """The request keeps a slot while its pages are filled; False if they cannot be had."""
        state = self._state
        assert offer.arrived is not None
        tokens = self._reach(request, match, offer, 0)
        if not self._fits(request, match, tokens):
            return False
        state.queue.pop_first()
        slot = state.occupy(request, match, now)
        allocation = state.kv.reserve(slot, tokens)
        assert allocation is not None
        request.status = Status.LOADING
        state.loading[slot] = Loading(
            request, match.tokens, max(tokens, match.tokens), offer.arrived
        )
        draft.admit(request.admitted(int(state.slots.generation[slot])), 0, allocation)
        return True

    def _reach(self, request: Request, match: Match, offer: External, step: int) -> int:
        """Tokens that the request has with what is offered to it: no more than there is something
        left to compute, and, with `step` more, than the pool could hold with nobody else in it.
        The pages of all of them are needed at once, also those that are soon given back."""
        most = match.tokens + min(offer.tokens, request.hit_limit() - match.tokens)
        if not offer.tokens:
            return most
        kv, encoder = self._state.kv, request.input.encoder_tokens
        if offer.arrived is None and kv.borders.tokens is not None:
            return match.tokens  # no plan can copy a state that is not in its page yet
        total = kv.most_pages(request.input.max_total)

        def needed(start: int) -> int:
            tokens = min(start + step, request.num_computable)
            later = max(total - kv.most_pages(tokens), 0)
            whole = kv.whole_pages(tokens, encoder)
            return whole + (later if self._state.config.whole_sequence_must_fit else 0)

        pages = kv.pool.num_pages - 1 - len(kv.pins)
        reach = range(match.tokens, most + 1)
        fitting = bisect_right(reach, pages, key=needed)
        return reach[max(fitting - 1, 0)]

    def _fits(self, request: Request, match: Match, tokens: int) -> bool:
        """Whether the pages can be had, with what must stay free."""
        state = self._state
        spare = self._watermark if state.running or state.loading else 0
        if state.config.whole_sequence_must_fit:
            spare = max(spare, self._promised(request, match, tokens))
        return state.kv.fits(match, tokens, request.input.encoder_tokens, spare)

    def _promised(self, request: Request, match: Match, tokens: int) -> int:
        """Pages that this and the running requests may still claim beyond what they hold."""
        kv, limits, entry = self._state.kv, self._state.slots.limit, request.input
        others = (*self._state.running, *self._state.loading)
        own = claim_of_newcomer(kv, match, tokens, entry.encoder_tokens, entry.max_total)
        if not others:  # what is pinned is shared with nobody who could claim more
            return own
        claims = sum(claim_of(kv, slot, int(limits[slot])) for slot in others)
        return own + claims + newly_shared(kv, match)
