"""A runner without a model: every row that may sample gets a token, by array operations."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from time import thread_time
from typing import Any

import numpy as np

from framework.contracts.kv_cache_spec import FullAttentionSpec
from framework.contracts.model_runner import ModelRunner, RunnerContext
from framework.contracts.step import (
    I32,
    Bool,
    CachePlan,
    LateInputs,
    RunnerInfo,
    StepPlan,
    StepResult,
    Ticket,
)
from framework.errors import UnsupportedError


class NullRunner(ModelRunner):
    """num_pages pages of page_tokens tokens, null page included.  on_finish: called with the
    plan of each step when it ends.

    seconds: spent inside the runner by `clock`, so that a benchmark can leave it out; None: it is
    not asked, which takes longer than the rest.
    steps: finished.  last: the plan that was finished last.
    """

    def __init__(
        self,
        *,
        num_pages: int,
        page_tokens: int,
        vocab_size: int = 2,
        on_finish: Callable[[StepPlan], None] | None = None,
        clock: Callable[[], float] | None = thread_time,
    ) -> None:
        super().__init__()
        self._num_pages, self._page_tokens = num_pages, page_tokens
        self._vocab_size = vocab_size
        self._on_finish = on_finish
        self._clock = clock or (lambda: 0.0)
        self._flight: deque[tuple[StepPlan, StepResult]] = deque()
        self._wants: Bool | None = None
        self._offsets: I32 = np.zeros(1, np.int32)
        self._token_ids: I32 = np.zeros(0, np.int32)
        self.seconds = 0.0
        self.steps = 0
        self.last: StepPlan | None = None

    def info(self) -> RunnerInfo:
        """What `load` tells, without a context."""
        spec = FullAttentionSpec(num_kv_heads=1, head_size=1, head_size_v=1, dtype="float32")
        return RunnerInfo(
            layers={"layer": spec},
            page_tokens=(self._page_tokens,),
            bytes_free=self._num_pages * spec.page_bytes(self._page_tokens),
            vocab_size=self._vocab_size,
            features=frozenset(),
            max_loop_depth=2,
            notes=("null runner: no model",),
        )

    def load(self, context: RunnerContext) -> RunnerInfo:
        return self.info()

    def bind(self, plan: CachePlan) -> None:
        """There is no cache."""

    def submit(self, plan: StepPlan) -> Ticket:
        start = self._clock()
        self._flight.append((plan, self._result(plan)))
        ticket = Ticket(plan.step_id)
        self.seconds += self._clock() - start
        return ticket

    def finish(self, ticket: Ticket, late: LateInputs) -> StepResult:
        start = self._clock()
        plan, result = self._flight.popleft()
        self.last = plan
        self.steps += 1
        if self._on_finish is not None:
            self._on_finish(plan)
        self.seconds += self._clock() - start
        return result

    def _result(self, plan: StepPlan) -> StepResult:
        if plan.wants_logits is not self._wants:  # most steps are told with the array of the last
            self._wants = plan.wants_logits
            self._offsets = np.zeros(plan.num_rows + 1, np.int32)
            np.cumsum(plan.wants_logits, out=self._offsets[1:])
            self._token_ids = np.zeros(self._offsets.item(-1), np.int32)
        return StepResult(
            step_id=plan.step_id,
            slots=plan.slots,
            generations=plan.generations,
            token_offsets=self._offsets,
            token_ids=self._token_ids,
        )

    def control(self, op: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        raise UnsupportedError(f"the null runner has no operation {op!r}")

    def close(self) -> None:
        """There is nothing to give back."""
