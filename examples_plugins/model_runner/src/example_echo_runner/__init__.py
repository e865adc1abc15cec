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
FEATURES: frozenset[str] = frozenset()


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
            features=FEATURES,
            max_loop_depth=DEPTH,
        )

    def bind(self, plan: CachePlan) -> None:
        self._bound = True

    def submit(self, plan: StepPlan) -> Ticket:
        check_features(self, plan.used(), FEATURES)
        if not self._bound or len(self._queue) >= DEPTH:
            raise IntegrityError("not bound, or too many steps in flight", expected=f"<= {DEPTH}")
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
        owners = zip(plan.slots.tolist(), plan.generations.tolist(), strict=True)
        if any(self._held[slot][0].generation != generation for slot, generation in owners):
            raise IntegrityError("a row names a request that is not in its slot")
        ids = [self._sample(int(slot)) for slot in plan.slots[plan.wants_logits]]
        return StepResult(
            step_id=plan.step_id,
            slots=plan.slots,
            generations=plan.generations,
            token_offsets=np.concatenate(([0], np.cumsum(plan.wants_logits))).astype(np.int32),
            token_ids=np.array(ids, np.int32),
            accepted=np.zeros(plan.num_rows, np.int32),
        )

    def control(self, op: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        raise UnsupportedError(f"this runner has no operation {op!r}")

    def close(self) -> None:
        self._bound = False
        self._held.clear()
        self._queue.clear()

    def _sample(self, slot: int) -> int:
        request, tokens = self._held[slot]
        sampling = request.sampling
        wanted = tokens[len(tokens) - request.num_prompt]
        banned = {
            last for *head, last in request.bad_words if tokens[len(tokens) - len(head) :] == head
        }
        if sampling is not None and len(tokens) - request.num_prompt < sampling.min_tokens:
            banned |= set(request.stop_ids)
        allowed = sampling.allowed_token_ids if sampling is not None else None
        some = range(self._vocab) if allowed is None else sorted(allowed)
        free = [token for token in some if token not in banned]
        if not free:
            raise UnsupportedError("the request forbids every token", found=request.request_id)
        tokens.append(next((token for token in free if token >= wanted), free[0]))
        return tokens[-1]
