"""The engine core on a virtual clock: a step takes what the cost model says, and no time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from framework.bench.distributions import F64, I64
from framework.bench.null_runner import NullRunner
from framework.contracts.messages import EngineInput, EngineOutputs
from framework.contracts.sampling import SamplingParams
from framework.core.config import CoreConfig
from framework.core.engine_core import EngineCore
from framework.errors import ConfigError, FrameworkError

if TYPE_CHECKING:
    from framework.bench.cost import StepCost
    from framework.bench.trace import Trace
    from framework.contracts.scheduling_policy import SchedulingPolicy
    from framework.contracts.step import I32, StepPlan

IDLE_SECONDS = 0.001
"""How far the clock moves when requests wait and nothing can be computed."""
MOST_IDLE_STEPS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationConfig:
    """cost: of a step.  The rest as in `CoreConfig`; page_size: tokens per page."""

    cost: StepCost
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    num_pages: int = 32_768
    page_size: int = 16
    loop_depth: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """What happened.

    request, time: of every token in order of time, int64 and float64 [T].  preemptions: per
    request, int64 [n].  failed: per request, bool [n]: it ended with an error.  steps: number
    of steps.  end: seconds on the virtual clock.
    """

    request: I64
    time: F64
    preemptions: I64
    failed: np.ndarray[tuple[int], np.dtype[np.bool_]]
    steps: int
    end: float


class VirtualClock:
    """Seconds that pass only when told so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def simulate(trace: Trace, policy: SchedulingPolicy, config: SimulationConfig) -> Timeline:
    """Play the trace.  Raises ConfigError if a request can never fit."""
    return _Simulation(trace, policy, config).run()


class _Simulation:
    def __init__(self, trace: Trace, policy: SchedulingPolicy, config: SimulationConfig) -> None:
        _check_room(trace, config)
        self._trace, self._cost = trace, config.cost
        self._clock = VirtualClock()
        self._admissions = np.zeros(len(trace), np.int64)
        self._failed = np.zeros(len(trace), np.bool_)
        self._requests: list[I64] = []
        self._times: list[float] = []
        self._ids: tuple[str, ...] | None = None
        self._offsets: I32 | None = None
        self._owners: I64 = np.zeros(0, np.int64)
        self._runner = NullRunner(
            num_pages=config.num_pages,
            page_tokens=config.page_size,
            on_finish=self._finish,
            clock=None,
        )
        settings = CoreConfig(
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            max_model_len=trace.longest,
            num_pages=config.num_pages,
            loop_depth=config.loop_depth,
            # Made-up prompts have no contents, so that no prefix could be found rightly.
            enable_prefix_caching=False,
        )
        self._core = EngineCore(
            self._runner, self._runner.info(), settings, policy=policy, clock=self._clock
        )
        self._add = self._adder()

    def run(self) -> Timeline:
        core, clock, arrival = self._core, self._clock, self._trace.arrival.tolist()
        coming, idle = 0, 0
        while coming < len(arrival) or core.has_work():
            if not core.has_work():
                clock.now = max(clock.now, arrival[coming])
            while coming < len(arrival) and arrival[coming] <= clock.now:
                self._add(coming)
                coming += 1
            steps = self._runner.steps
            self._note(core.step())
            idle = 0 if self._runner.steps > steps else idle + 1
            if idle and core.has_work():
                self._wait(arrival[coming] if coming < len(arrival) else None, idle)
        core.close()
        return Timeline(
            request=np.concatenate(self._requests) if self._requests else np.zeros(0, np.int64),
            time=np.repeat(self._times, [len(rows) for rows in self._requests]),
            preemptions=np.maximum(self._admissions - 1, 0),
            failed=self._failed,
            steps=self._runner.steps,
            end=clock.now,
        )

    def _adder(self) -> Callable[[int], None]:
        """Adds request i at its own time, though the step that was under way ended later."""
        trace, core, clock = self._trace, self._core, self._clock
        names = [trace.tenant_names[index] for index in trace.tenant.tolist()]
        arrival, priority = trace.arrival.tolist(), trace.priority.tolist()
        prompt, output = trace.prompt.tolist(), trace.output.tolist()
        tokens = np.zeros(max(prompt, default=0), np.int32)
        sampling = SamplingParams(temperature=0, ignore_eos=True, max_tokens=None)

        def add(index: int) -> None:
            now, clock.now = clock.now, arrival[index]
            core.add(
                EngineInput(
                    request_id=str(index),
                    tokens=tokens[: prompt[index]],
                    sampling=sampling,
                    seed=0,
                    max_total=prompt[index] + output[index],
                    tenant=names[index],
                    priority=priority[index],
                )
            )
            clock.now = now

        return add

    def _finish(self, plan: StepPlan) -> None:
        self._clock.now += self._cost.seconds(plan)
        for request in plan.admitted:
            self._admissions[int(request.request_id)] += 1

    def _note(self, outputs: EngineOutputs) -> None:
        ids = outputs.request_ids
        if len(outputs.token_ids):
            if ids is not self._ids or outputs.token_offsets is not self._offsets:
                # Most steps are told with the ids and offsets of the step before.
                self._ids, self._offsets = ids, outputs.token_offsets
                rows = np.fromiter(map(int, ids), np.int64, len(ids))
                self._owners = np.repeat(rows, np.diff(outputs.token_offsets))
            self._requests.append(self._owners)
            self._times.append(self._clock.now)
        for end in outputs.finished:
            if end.reason == "error":
                self._failed[int(ids[end.row])] = True

    def _wait(self, next_arrival: float | None, idle: int) -> None:
        """Nothing could be computed: time passes, at most until somebody comes."""
        if idle > MOST_IDLE_STEPS:
            raise FrameworkError(
                "requests wait and nothing is computed any more",
                found=f"{self._core.stats}",
                mend="look at what the policy and the participants answer",
            )
        later = self._clock.now + IDLE_SECONDS
        self._clock.now = later if next_arrival is None else min(later, next_arrival)


def _check_room(trace: Trace, config: SimulationConfig) -> None:
    room = (config.num_pages - 1) * config.page_size
    if trace.longest > room:
        raise ConfigError(
            "the longest request does not fit the cache",
            expected=f"at most {room} tokens in {config.num_pages} pages of {config.page_size}",
            found=trace.longest,
            mend="raise --num-pages, or shorten the requests",
        )
