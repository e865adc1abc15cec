"""One runner, in the caller's process and thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

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
from framework.errors import IntegrityError, SelectionError
from framework.plugins.lookup import kept_out


class InProcessExecutor(Executor):
    """Makes the model runner that the operator chose, or the only or best ranked one, and
    passes every call on."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._runner: ModelRunner | None = None

    def load(self, context: RunnerContext) -> RunnerInfo:
        name = context.choices.get("model_runner")
        if name is not None:
            made = context.registry.create("model_runner", name, named=True)
        else:
            candidates = context.registry.candidates("model_runner")
            if not candidates:
                kept = kept_out(context.registry.records("model_runner"))
                raise SelectionError(
                    "no model runner may be used" if kept else "no model runner is installed",
                    plugin="model_runner",
                    expected="one",
                    found=kept or "none",
                    mend="mend that, or allow it" if kept else "pip install framework-plugin-torch",
                )
            made = context.registry.create("model_runner", candidates[0].name)
        self._runner = cast(ModelRunner, made)
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
