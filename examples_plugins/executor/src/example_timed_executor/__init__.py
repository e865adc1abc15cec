"""An executor around another one: it measures how long each step takes."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from pydantic import BaseModel, Field

from framework.contracts.executor import Executor
from framework.contracts.model_runner import RunnerContext
from framework.contracts.step import (
    CachePlan,
    LateInputs,
    RunnerInfo,
    StepPlan,
    StepResult,
    Ticket,
)
from framework.errors import IntegrityError

LOGGER = logging.getLogger(__name__)
TIMES = "step_times"


class Options(BaseModel, extra="forbid"):
    """What --plugin-option executor.timed.KEY=VALUE can set."""

    inner: str = Field(default="in_process", description="Name of the executor that does the work.")


class TimedExecutor(Executor):
    """Adds the operation `step_times`: steps, and seconds from `submit` to the end of `finish`."""

    Options = Options

    def __init__(self, options: Options | None = None) -> None:
        super().__init__(options)
        self._name = (options or Options()).inner
        self._made: Executor | None = None
        self._begun: dict[int, float] = {}
        self._steps, self._seconds = 0, 0.0

    def load(self, context: RunnerContext) -> RunnerInfo:
        self._made = cast(Executor, context.registry.create("executor", self._name, named=True))
        info = self._made.load(context)
        return replace(info, control_ops=info.control_ops | {TIMES})

    def bind(self, plan: CachePlan) -> None:
        self._inner.bind(plan)

    def submit(self, plan: StepPlan) -> Ticket:
        begun = time.perf_counter()
        ticket = self._inner.submit(plan)
        self._begun[ticket.step_id] = begun
        return ticket

    def finish(self, ticket: Ticket, late: LateInputs) -> StepResult:
        result = self._inner.finish(ticket, late)
        self._seconds += time.perf_counter() - self._begun.pop(ticket.step_id)
        self._steps += 1
        return result

    def control(self, op: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        if op == TIMES:
            return {"steps": self._steps, "seconds": self._seconds}
        return self._inner.control(op, arguments)

    def close(self) -> None:
        inner, self._made = self._made, None
        if inner is not None:
            LOGGER.info("%d steps in %.3f s", self._steps, self._seconds)
            inner.close()

    @property
    def _inner(self) -> Executor:
        if self._made is None:
            raise IntegrityError("the executor is not loaded, or was closed")
        return self._made
