"""One runner, in the caller's process and thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from framework.contracts.executor import Executor
from framework.contracts.model_runner import ModelRunner, RunnerContext
from framework.contracts.step import (
    CachePlan,
    LateInputs,
    RunnerInfo,
    StepPlan,
    StepResult,
    Ticket,
)
from framework.errors import IntegrityError
from framework.plugins.runners import create_runner


class InProcessExecutor(Executor):
    """Makes the model runner that the operator chose, or the only or best ranked one, and
    passes every call on."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._runner: ModelRunner | None = None

    def load(self, context: RunnerContext) -> RunnerInfo:
        self._runner = create_runner(context)
        return self._runner.load(context)

    def bind(self, plan: CachePlan) -> None:
        self._own().bind(plan)

    def submit(self, plan: StepPlan) -> Ticket:
        return self._own().submit(plan)

    def finish(self, ticket: Ticket, late: LateInputs) -> StepResult:
        return self._own().finish(ticket, late)

    def control(self, op: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._own().control(op, arguments)

    def close(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()

    def _own(self) -> ModelRunner:
        if self._runner is None:
            raise IntegrityError("the executor is not loaded, or was closed")
        return self._runner
