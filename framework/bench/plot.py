"""A picture of who waits how long."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from framework.bench.report import PolicyRun, check_folder, readable
from framework.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from framework.bench.trace import Trace

STYLES = ("-", "--", ":", "-.")
MOST_TENANTS = 8
"""Curves of one policy: more cannot be told apart, and those of the most requests are drawn."""


def write_plot(figure: Figure, path: Path) -> None:
    """Raises ConfigError where the file cannot be written."""
    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise ConfigError(f"the plot cannot be written: {error}", found=str(path)) from error


def check_plot(path: Path) -> None:
    """Raises ConfigError, before anything is computed, if no plot could be drawn."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError(
            "a plot needs matplotlib, which is not installed",
            mend='pip install "framework[bench]", or leave out --plot',
        ) from error
    kinds = sorted(Figure().canvas.get_supported_filetypes())
    if path.suffix.lstrip(".").lower() not in kinds:
        raise ConfigError(
            "the plot's name has no known ending",
            expected=f"one of {', '.join('.' + kind for kind in kinds)}",
            found=str(path),
        )
    check_folder(path)


def plot(path: Path, trace: Trace, runs: Sequence[PolicyRun]) -> None:
    """Write the distribution of the time to first token per policy (colour) and tenant
    (line) to `path`.  Raises ConfigError if that cannot be written."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.5), layout="constrained")
    axes = figure.add_subplot()
    sizes = np.bincount(trace.tenant, minlength=len(trace.tenant_names))
    shown = np.argsort(-sizes, kind="stable")[:MOST_TENANTS].tolist()
    for number, run in enumerate(runs):
        for place, tenant in enumerate(shown):
            ttft = run.latencies.ttft[trace.tenant == tenant]
            ttft = np.sort(ttft[np.isfinite(ttft)])
            if not len(ttft):
                continue
            part = np.arange(1, len(ttft) + 1) / len(ttft)
            name = readable(trace.tenant_names[tenant])
            axes.step(
                np.maximum(ttft, 1e-6),
                part,
                where="post",
                color=f"C{number % 10}",
                linestyle=STYLES[place % len(STYLES)],
                linewidth=2.0 - 0.5 * (place // len(STYLES)),
                label=f"{run.policy}: {name} ({len(ttft)})".replace("$", r"\$"),
            )
    axes.set_xscale("log")
    axes.set_xlabel("time to first token, seconds")
    axes.set_ylabel("part of the tenant's requests")
    axes.set_ylim(0, 1.02)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    write_plot(figure, path)
