"""An executor that notes how long each step takes and where: between core and runner.

    step    |-- schedule --|-- runner: prepare, forward, sample --|-- update --|-- output --|
            core.step      submit ...                       finish             processed

It wraps the usual one through the door that every plugin has, so that what is measured is what
users run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel

from framework.contracts.executor import Executor

if TYPE_CHECKING:
    from framework.contracts.model_runner import ModelRunner, RunnerContext
    from framework.contracts.step import (
        CachePlan,
        LateInputs,
        RunnerInfo,
        StepPlan,
        StepResult,
        Ticket,
    )

NAME = "probed"
PLUGINS = {f"executor:{NAME}": f"{__name__}:ProbedExecutor"}


@dataclass(slots=True)
class Probed:
    """One step.  rows, tokens: of its plan.  submitted, finished: by perf_counter.  timings: the
    runner's own, seconds by phase."""

    rows: int
    tokens: int
    submitted: float
    finished: float = 0.0
    timings: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Probe:
    """steps: in order; executor: the one that notes them, once it is made."""

    steps: list[Probed] = field(default_factory=list)
    executor: ProbedExecutor | None = None


_CURRENT: ContextVar[Probe] = ContextVar("probe")


@contextmanager
def probing() -> Iterator[Probe]:
    """Executors of the name `NAME` that are made within note their steps in what this gives."""
    probe = Probe()
    token = _CURRENT.set(probe)
    try:
        yield probe
    finally:
        _CURRENT.reset(token)


class ProbedOptions(BaseModel):
    """wraps: the executor that does the work."""

    wraps: str = "in_process"


class ProbedExecutor(Executor):
    """Passes every call on, at a loop depth of one."""

    Options = ProbedOptions

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._wraps: str = options.wraps
        self._probe = _CURRENT.get()
        self._probe.executor = self
        self._inner: ModelRunner | None = None

    def load(self, context: RunnerContext) -> RunnerInfo:
        inner = context.registry.create("executor", self._wraps, named=True)
        self._inner = cast("ModelRunner", inner)
        return self._inner.load(context)

    def bind(self, plan: CachePlan) -> None:
        self._own().bind(plan)

    def submit(self, plan: StepPlan) -> Ticket:
        self._probe.steps.append(Probed(plan.num_rows, plan.num_tokens, perf_counter()))
        return self._own().submit(plan)

    def finish(self, ticket: Ticket, late: LateInputs) -> StepResult:
        result = self._own().finish(ticket, late)
        noted = self._probe.steps[-1]
        noted.timings, noted.finished = result.timings, perf_counter()
        return result

    def control(self, op: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._own().control(op, arguments)

    def close(self) -> None:
        if self._inner is not None:
            self._inner.close()

    def _own(self) -> ModelRunner:
        assert self._inner is not None
        return self._inner
