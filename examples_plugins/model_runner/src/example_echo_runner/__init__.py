"""A model runner without a model: it repeats the prompt, over and over."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from framework.contracts.base import check_features
from framework.contracts.kv_cache_spec import EncoderOnlySpec
from framework.contracts.model_runner import ModelRunner, RunnerContext
from framework.contracts.step import (
    AdmittedRequest,
    CachePlan,
    LateInputs,
    RunnerInfo,
    StepPlan,
    StepResult,
    Ticket,
)
from framework.errors import IntegrityError, UnsupportedError

DEPTH = 2
BYTES = 256


class EchoRunner(ModelRunner):
    """Holds the tokens of each slot.  A token that the request forbids gives way to the next id."""

    def __init__(self, options: None = None) -> None:
        super().__init__(options)
        self._vocab = BYTES
        self._held: dict[int, tuple[AdmittedRequest, list[int]]] = {}
        self._queue: deque[StepPlan] = deque()
        self._bound = False

    def load(self, context: RunnerContext) -> RunnerInfo:
        self._vocab = int(context.model.config.get("vocab_size", BYTES))
        return RunnerInfo(
            layers={"echo": EncoderOnlySpec()},  # nothing is kept in the cache
            page_tokens=(context.page_tokens or 16,),
            bytes_free=0,
            vocab_size=self._vocab,
            features=frozenset(),
            max_loop_depth=DEPTH,
        )

    def bind(self, plan: CachePlan) -> None:
        self._bound = True

    def submit(self, plan: StepPlan) -> Ticket:
        if not self._bound:
            raise IntegrityError("a runner computes between `bind` and `close`")
        check_features(self, plan.used(), frozenset())
        if len(self._queue) >= DEPTH:
            raise IntegrityError("too many steps in flight", expected=f"at most {DEPTH}")
        self._queue.append(plan)
        return Ticket(plan.step_id)

    def finish(self, ticket: Ticket, late: LateInputs) -> StepResult:
        if not self._queue or self._queue[0].step_id != ticket.step_id:
            raise IntegrityError("steps are finished in order", found=ticket.step_id)
        plan = self._queue.popleft()
        for slot, generation in plan.released:
            if slot in self._held and self._held[slot][0].generation == generation:
                del self._held[slot]
        self._held |= {r.slot: (r, r.tokens.tolist()) for r in plan.admitted}
        ids: list[int] = []
        errors: dict[int, str] = {}
        for row, (slot, generation) in enumerate(zip(plan.slots, plan.generations, strict=True)):
            request, tokens = self._held[int(slot)]
            if request.generation != generation:
                raise IntegrityError("a row names a request that is not in its slot", found=slot)
            if plan.wants_logits[row]:
                free = self._free(request, tokens)
                if not free:  # the request ends; its token means nothing
                    errors[row] = "the request forbids every token"
                wanted = tokens[len(tokens) - request.num_prompt]
                tokens.append(next((t for t in free if t >= wanted), min(free, default=0)))
                ids.append(tokens[-1])
        return StepResult(
            step_id=plan.step_id,
            slots=plan.slots,
            generations=plan.generations,
            token_offsets=np.concatenate(([0], np.cumsum(plan.wants_logits))).astype(np.int32),
            token_ids=np.array(ids, np.int32),
            accepted=np.zeros(plan.num_rows, np.int32),
            errors=errors,
        )

    def control(self, op: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        raise UnsupportedError(f"this runner has no operation {op!r}")

    def close(self) -> None:
        self._bound = False
        self._held.clear()
        self._queue.clear()

    def _free(self, request: AdmittedRequest, tokens: list[int]) -> list[int]:
        """What the request allows next, in order."""
        sampling, end = request.sampling, len(tokens)
        banned = {last for *head, last in request.bad_words if tokens[end - len(head) :] == head}
        if sampling is not None and end - request.num_prompt < sampling.min_tokens:
            banned |= set(request.stop_ids)
        allowed = sampling.allowed_token_ids if sampling is not None else None
        some = range(self._vocab) if allowed is None else sorted(allowed)
        return [token for token in some if token not in banned]
