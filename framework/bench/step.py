"""Where the time of a decode step goes: by phase, by operator, beside what the machine can give.

`requests` requests get prompts of `context` tokens, and then all decode; of these steps the median
counts.  What is not the model's own arithmetic (forward and logits) is overhead.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from framework.bench.probe import NAME, PLUGINS, Probe, Probed, probing
from framework.bench.workload import Case
from framework.contracts.sampling import SamplingParams
from framework.engine.build import build_engine
from framework.engine.request_options import RequestOptions
from framework.errors import ConfigError, UnsupportedError

if TYPE_CHECKING:
    from framework.config.resolve import Resolved
    from framework.engine.build import Engine
    from framework.engine.client import Core

MODEL = ("forward", "logits")
PHASES = ("schedule", "prepare", *MODEL, "sample", "runner", "update", "output")
"""runner: what the runner does beside its own phases; output: detokenizing and handing out."""
OPTIONS: Mapping[str, object] = {"plugins": PLUGINS, "executor": NAME}
"""What the configuration needs for `measure`."""
PROFILED = 8
"""Steps under the profiler, which slows them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigures:
    """step_ms: median over `steps`.  phases: milliseconds, medians.  overhead: the part of a step
    that is not the model's, median too."""

    requests: int
    context: int
    steps: int
    step_ms: float
    phases: Mapping[str, float]
    overhead: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """operators: (name, calls per step, milliseconds per step), most first; the profiler is in
    these times.  work: `flops` and `bytes` of a step's linear operators, `cache_bytes` that
    attention reads; machine: `flops_per_s` and `bytes_per_s` that it gave in this run; None: the
    runner cannot tell."""

    operators: Sequence[tuple[str, float, float]]
    work: Mapping[str, float] | None
    machine: Mapping[str, float] | None


class Clocked:
    """A core that notes when its step began and ended; the rest it passes on."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.began = self.ended = 0.0

    def step(self) -> Any:
        self.began = perf_counter()
        try:
            return self._core.step()
        finally:
            self.ended = perf_counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)


def measure(
    resolved: Resolved, requests: int, context: int, steps: int, *, profile: bool = False
) -> tuple[StepFigures, Profile | None]:
    """Measure `steps` decode steps of an engine, made with `OPTIONS`.

    Raises ConfigError if the requests do not fit the cache side by side.
    """
    more = PROFILED if profile else 0
    # Before the first one that counts: a token of the prompt's step, and one of a first decode.
    case = Case(requests=requests, prompt=context, output=steps + more + 3)
    with _engine(resolved) as (engine, probe):
        core = Clocked(engine.client.core)
        engine.client.core = core
        _add(engine, case)
        while not (probe.steps and _decodes(probe.steps[-1], requests)):
            _step(engine, probe, requests)
        samples = []
        for _ in range(steps):
            start = perf_counter()
            _step(engine, probe, requests)
            samples.append(_phases(probe.steps[-1], core, start, perf_counter()))
        found = _profile(engine, probe, case) if profile else None
    medians = {name: statistics.median(one[name] for one in samples) for name in samples[0]}
    rest = [1 - sum(one[name] for name in MODEL) / one["step"] for one in samples]
    figures = StepFigures(
        requests=requests,
        context=context,
        steps=steps,
        step_ms=medians["step"] * 1e3,
        phases={name: medians[name] * 1e3 for name in PHASES},
        overhead=statistics.median(rest),
    )
    return figures, found


@contextmanager
def _engine(resolved: Resolved) -> Iterator[tuple[Engine, Probe]]:
    with probing() as probe:
        engine = build_engine(resolved)
        try:
            yield engine, probe
        finally:
            engine.client.close()


def _add(engine: Engine, case: Case) -> None:
    params = SamplingParams(temperature=0, max_tokens=case.output, ignore_eos=True)
    prompts = case.prompts(engine.tokenizer.vocab_size)
    asked = [{"prompt_token_ids": prompt} for prompt in prompts]
    options = RequestOptions()
    engine.client.add([engine.inputs.process(one, params, options) for one in asked])


def _step(engine: Engine, probe: Probe, requests: int) -> None:
    engine.client.step()
    stats = engine.client.core.stats
    if stats.preemptions or not engine.client.core.has_work():
        raise ConfigError(
            "the requests cannot decode side by side",
            expected=f"a cache and a table for {requests} requests",
            found=f"{stats.preemptions} preemptions",
            mend="ask for fewer requests or less context, or raise kv_cache_memory_bytes",
        )


def _decodes(step: Probed, requests: int) -> bool:
    return step.rows == step.tokens == requests


def _phases(step: Probed, core: Clocked, start: float, end: float) -> dict[str, float]:
    """Seconds of one step."""
    own = {name: step.timings.get(name, 0.0) for name in ("prepare", *MODEL, "sample")}
    return {
        "step": end - start,
        "schedule": step.submitted - core.began,
        **own,
        "runner": step.finished - step.submitted - sum(own.values()),
        "update": core.ended - step.finished,
        "output": (end - start) - (core.ended - core.began),
    }


def _profile(engine: Engine, probe: Probe, case: Case) -> Profile:
    """Some more steps under the runner's own profiler."""
    executor = probe.executor
    assert executor is not None
    try:
        executor.control("profile", {"action": "begin"})
        try:
            for _ in range(PROFILED):
                engine.client.step()
        finally:
            told = {"action": "end", "rows": case.requests, "context": case.prompt}
            found = executor.control("profile", told)
    except UnsupportedError as error:
        raise ConfigError(
            "--profile: the model runner cannot tell where its time goes", found=str(error)
        ) from error
    operators = [
        (name, calls / PROFILED, seconds / PROFILED * 1e3)
        for name, calls, seconds in found["operators"]
    ]
    return Profile(operators=operators, work=found.get("work"), machine=found.get("machine"))


def as_json(figures: StepFigures, profile: Profile | None) -> dict[str, Any]:
    """What `--json` writes."""
    from framework import __version__

    return {
        "version": __version__,
        **asdict(figures),
        "profile": None if profile is None else asdict(profile),
    }
