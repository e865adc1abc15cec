"""The entry point of the torch runner.  torch is imported when it loads."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel

from framework.contracts.base import check_features
from framework.contracts.model_runner import ModelRunner, RunnerContext
from framework.contracts.step import (
    CachePlan,
    LateInputs,
    RunnerInfo,
    StepPlan,
    StepResult,
    Ticket,
)
from framework.errors import IntegrityError, UnsupportedError
from framework_torch.operations import CONTROL_OPS
from framework_torch.options import TorchOptions

if TYPE_CHECKING:
    from framework_torch.adapters.bank import AdapterBank
    from framework_torch.loading import Loaded
    from framework_torch.profiling import Profiler
    from framework_torch.step import StepComputer


class TorchRunner(ModelRunner):
    """`submit` only queues a plan and `finish` computes it.

    On the host nothing can run beside the caller's thread anyway, and so a step that was
    planned while the one before was in flight finds that one's tokens in the table.
    """

    Options: ClassVar[type[BaseModel] | None] = TorchOptions

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._options = options or TorchOptions()
        self._loaded: Loaded | None = None
        self._computer: StepComputer | None = None
        self._context: RunnerContext | None = None
        self._info: RunnerInfo | None = None
        self._plan: CachePlan | None = None
        self._queue: deque[StepPlan] = deque()
        self._steps = 0
        self._profiler: Profiler | None = None
        self._adapters: AdapterBank | None = None

    def load(self, context: RunnerContext) -> RunnerInfo:
        from framework_torch.loading import load

        self._context = context
        self._loaded = load(context, options=self._options)
        self._info, self._adapters = self._loaded.info, self._loaded.adapters
        return self._info

    def bind(self, plan: CachePlan) -> None:
        from framework_torch.binding import bind

        self._computer = bind(self._ready_to_bind(), plan)
        self._plan = plan

    def submit(self, plan: StepPlan) -> Ticket:
        loaded = self._ready_to_bind()
        if self._computer is None:
            raise IntegrityError("the runner computes only after `bind`, and awake")
        depth = loaded.info.max_loop_depth
        if len(self._queue) >= depth:
            raise IntegrityError(
                "more steps in flight than the runner declared",
                expected=f"at most {depth}",
                found=len(self._queue) + 1,
            )
        check_features(self, plan.used(), loaded.info.features)
        self._queue.append(plan)
        return Ticket(plan.step_id)

    def finish(self, ticket: Ticket, late: LateInputs) -> StepResult:
        if self._computer is None:
            raise IntegrityError("the runner computes only after `bind`, and before `close`")
        if not self._queue or self._queue[0].step_id != ticket.step_id:
            raise IntegrityError(
                "steps are finished in the order of submission",
                expected=self._queue[0].step_id if self._queue else "a submitted step",
                found=ticket.step_id,
            )
        result = self._computer.run(self._queue.popleft(), late)
        self._steps += 1
        return result

    def control(self, op: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        match op:
            case "health":
                return {
                    "ready": self._computer is not None,
                    "steps": self._steps,
                    "in_flight": len(self._queue),
                }
            case "sleep":
                self._sleep(weights=arguments["level"] > 1)
            case "wake":
                self._wake()
            case "profile":
                return self._profile(arguments)
            case "adapters" if self._adapters is not None:
                return self._adapters.store.control(arguments)
            case _:
                raise UnsupportedError(
                    f"the torch runner has no operation {op!r}",
                    expected=f"one of {', '.join(sorted(self._operations()))}",
                    found=op,
                )
        return {}

    def _operations(self) -> frozenset[str]:
        return CONTROL_OPS if self._info is None else self._info.control_ops

    def _profile(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        from framework_torch.profiling import Profiler

        if self._profiler is None:
            self._profiler = Profiler(self._options.profile_folder)
        return self._profiler.control(self._ready_to_bind, arguments)

    def _sleep(self, *, weights: bool) -> None:
        """Forget the cache and the tables of the requests, and the model with its weights."""
        from framework_torch.memory import return_memory

        if self._plan is None or self._queue:
            raise IntegrityError("the runner sleeps only after `bind`, and with nothing in flight")
        device = None if self._loaded is None else self._loaded.facts.device
        self._computer = None
        if self._adapters is not None:
            self._adapters.forget()
        if weights:
            self._loaded = None
        if device is not None:
            return_memory(device)

    def _wake(self) -> None:
        from framework_torch.binding import bind
        from framework_torch.loading import load_again

        if self._plan is None or self._context is None or self._info is None:
            raise IntegrityError("the runner wakes only after `bind`")
        if self._loaded is None:
            self._loaded = load_again(self._context, self._info, self._adapters, self._options)
        if self._computer is None:
            self._computer = bind(self._loaded, self._plan)

    def close(self) -> None:
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            profiler.close()
        adapters, self._adapters = self._adapters, None
        if adapters is not None:
            adapters.store.close()
        self._computer = None
        self._loaded = None
        self._context = None
        self._plan = None
        self._queue.clear()

    def _ready_to_bind(self) -> Loaded:
        if self._loaded is None:
            raise IntegrityError("the runner is not loaded, or was closed")
        return self._loaded
