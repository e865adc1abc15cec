"""From a timeline to latencies, goodput and throughput."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from framework.bench.distributions import F64, I64
from framework.errors import ConfigError

if TYPE_CHECKING:
    from framework.bench.simulate import Timeline
    from framework.bench.trace import Trace

PERCENTILES = (50, 90, 99)
Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What a user is content with, in seconds: time to first token, and the request's mean
    time between two tokens.  None: whatever it is."""

    ttft: float | None = None
    itl: float | None = None

    def __post_init__(self) -> None:
        for option, value in (("--slo-ttft", self.ttft), ("--slo-itl", self.itl)):
            if value is not None and not 0 <= value < math.inf:
                raise ConfigError(f"{option} is invalid", expected="seconds >= 0", found=value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Per request, float64 [n], seconds; nan where it never happened: time to first token,
    to the last one, and the mean between two.  tokens: that came, int64 [n].
    gaps: float64 [g], all times between two tokens; gap_request: int64 [g], whose.
    """

    ttft: F64
    e2e: F64
    mean_itl: F64
    tokens: I64
    gaps: F64
    gap_request: I64


def latencies(trace: Trace, timeline: Timeline) -> Latencies:
    """All latencies of a run, by array operations."""
    n = len(trace)
    order = np.argsort(timeline.request, kind="stable")
    request, time = timeline.request[order], timeline.time[order]
    tokens = np.bincount(request, minlength=n)
    last = np.cumsum(tokens) - 1
    came = tokens > 0
    first_time, last_time = np.full(n, np.nan), np.full(n, np.nan)
    first_time[came] = time[(last - tokens + 1)[came]]
    last_time[came] = time[last[came]]
    whole = came & (tokens >= trace.output)
    same = request[1:] == request[:-1]
    mean = np.full(n, np.nan)
    several = tokens > 1
    mean[several] = (last_time - first_time)[several] / (tokens[several] - 1)
    return Latencies(
        ttft=first_time - trace.arrival,
        e2e=np.where(whole, last_time - trace.arrival, np.nan),
        mean_itl=mean,
        tokens=tokens,
        gaps=np.diff(time)[same],
        gap_request=request[1:][same],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of the requests of one tenant, or of all.

    ttft, itl, e2e: percentile -> seconds, None without any.  failed: that ended with an
    error.  attained: part of the requests that met the objective; goodput: those per second.
    throughput: requests per second; tokens_per_second: of output.  Rates are over the time
    from the first arrival to the last token.
    """

    requests: int
    failed: int
    ttft: dict[str, float | None]
    itl: dict[str, float | None]
    e2e: dict[str, float | None]
    attained: float
    goodput: float
    throughput: float
    tokens_per_second: float
    preemptions: int


def figures(
    trace: Trace, timeline: Timeline, found: Latencies, objective: Objective
) -> dict[str | None, Figures]:
    """Of each tenant by name, and of all under None."""
    everyone = np.ones(len(trace), np.bool_)
    groups: dict[str | None, Bool] = {None: everyone}
    groups |= {name: trace.tenant == index for index, name in enumerate(trace.tenant_names)}
    met = _met(found, objective)
    return {name: _figures(trace, timeline, found, met, mine) for name, mine in groups.items()}


def _met(found: Latencies, objective: Objective) -> Bool:
    """Requests that ended, in time.  One of a single token has no time between two."""
    met = np.isfinite(found.e2e)
    if objective.ttft is not None:
        met &= found.ttft <= objective.ttft
    if objective.itl is not None:
        met &= (found.tokens < 2) | (found.mean_itl <= objective.itl)
    return met


def _figures(trace: Trace, timeline: Timeline, found: Latencies, met: Bool, mine: Bool) -> Figures:
    count = int(mine.sum())
    ended = int(np.isfinite(found.e2e[mine]).sum())
    span = timeline.end - float(trace.arrival[0]) if len(trace) else 0.0
    span = max(span, 1e-9)
    return Figures(
        requests=count,
        failed=int(timeline.failed[mine].sum()),
        ttft=_percentiles(found.ttft[mine]),
        itl=_percentiles(found.gaps[mine[found.gap_request]]),
        e2e=_percentiles(found.e2e[mine]),
        attained=float(met[mine].mean()) if count else 0.0,
        goodput=float(met[mine].sum()) / span,
        throughput=ended / span,
        tokens_per_second=float(found.tokens[mine].sum()) / span,
        preemptions=int(timeline.preemptions[mine].sum()),
    )


def _percentiles(values: F64) -> dict[str, float | None]:
    finite = values[np.isfinite(values)]
    if not len(finite):
        return {f"p{p}": None for p in PERCENTILES}
    return {
        f"p{p}": float(value)
        for p, value in zip(PERCENTILES, np.percentile(finite, PERCENTILES), strict=True)
    }
