"""What a simulation found: as a table, as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from framework.bench.measure import Figures, Latencies
from framework.errors import ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from framework.bench.simulate import Timeline


MOST_ROWS = 40
"""Tenants with a row of their own: of more nobody reads a table, which takes 10 ms for a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRun:
    """One policy on the trace.  figures: by tenant, None: all.  wall_seconds: the
    simulation's own."""

    policy: str
    timeline: Timeline
    latencies: Latencies
    figures: Mapping[str | None, Figures]
    wall_seconds: float


def table(runs: Sequence[PolicyRun]) -> Table:
    """One row per policy and tenant, of many tenants those with the most requests; times in
    milliseconds."""
    from rich.markup import escape
    from rich.table import Table

    names = ("p50", "p90", "p99")
    head = ["policy", "tenant", "requests"]
    head += [f"{what} {name}" for what in ("TTFT", "ITL", "E2E") for name in names]
    head += ["SLO met", "good/s", "req/s", "tok/s", "preempted", "failed"]
    made = Table(*head, box=None, title="times in milliseconds", title_justify="left")
    for column in made.columns[2:]:
        column.justify = "right"
    for run in runs:
        for tenant, found in _rows(run.figures).items():
            times = [
                _milliseconds(group[name])
                for group in (found.ttft, found.itl, found.e2e)
                for name in names
            ]
            made.add_row(
                escape(run.policy),
                "all" if tenant is None else escape(readable(tenant)),
                str(found.requests),
                *times,
                f"{found.attained:.1%}",
                f"{found.goodput:.2f}",
                f"{found.throughput:.2f}",
                f"{found.tokens_per_second:.0f}",
                str(found.preemptions),
                str(found.failed),
            )
    return made


def _rows(figures: Mapping[str | None, Figures]) -> dict[str | None, Figures]:
    """Of all, and of the tenants that are shown."""
    tenants = [(name, found) for name, found in figures.items() if name is not None]
    if len(tenants) == 1:  # it is all
        tenants = []
    most = sorted(tenants, key=lambda tenant: -tenant[1].requests)[:MOST_ROWS]
    largest = {name for name, _ in most}
    return {name: found for name, found in figures.items() if name is None or name in largest}


def readable(tenant: str) -> str:
    """The name as it is shown: what cannot be printed, or would steer a terminal, is escaped."""
    shown = (c if c.isprintable() else ascii(c)[1:-1] for c in tenant)
    return "".join(shown) or "(none)"


def _milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1e3:.1f}" if seconds < 0.1 else f"{seconds * 1e3:.0f}"


def as_json(runs: Sequence[PolicyRun], settings: Mapping[str, Any]) -> dict[str, Any]:
    """settings: everything that is needed to repeat the runs."""
    from framework import __version__

    return {
        "version": __version__,
        "settings": {name: _plain(value) for name, value in settings.items()},
        "policies": [
            {
                "policy": run.policy,
                "steps": run.timeline.steps,
                "simulated_seconds": run.timeline.end,
                "wall_seconds": run.wall_seconds,
                "all": asdict(run.figures[None]),
                "tenants": {
                    name: asdict(found) for name, found in run.figures.items() if name is not None
                },
            }
            for run in runs
        ],
    }


def _plain(value: Any) -> Any:
    """JSON has no infinity, which a rate may be."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def check_folder(path: Path) -> None:
    """Raises ConfigError, before anything is computed, if `path` could not be written."""
    if not path.absolute().parent.is_dir() or path.is_dir():
        raise ConfigError(
            "the result cannot be written",
            expected="the name of a file in a folder that exists",
            found=str(path),
        )


def write_json(path: Path, value: object) -> None:
    """Raises ConfigError if the file cannot be written."""
    try:
        path.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n", "utf-8")
    except OSError as error:
        raise ConfigError(f"the result cannot be written: {error}", found=str(path)) from error
