"""A picture of latency against load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from framework.bench.plot import write_plot

PANELS = (("ttft", "TTFT"), ("tpot", "TPOT"), ("e2el", "E2EL"))


def draw(path: Path, results: Sequence[Mapping[str, Any]], objectives: Mapping[str, float]) -> None:
    """One panel for each time: its percentiles over the requests per second that were answered;
    a dotted line is what --goodput asks for.  Raises ConfigError if that cannot be written."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4.5), layout="constrained")
    points = sorted(results, key=lambda result: float(result["request_throughput"]))
    for place, (name, title) in enumerate(PANELS, start=1):
        axes = figure.add_subplot(1, len(PANELS), place)
        ending = f"_{name}_ms"
        lines = [key for key in points[0] if key.endswith(ending) and not key.startswith("std")]
        for key in lines:
            axes.plot(
                [point["request_throughput"] for point in points],
                [float("nan") if point[key] is None else point[key] for point in points],
                marker="o",
                label=key.removesuffix(ending),
            )
        if name in objectives:
            axes.axhline(objectives[name], linestyle=":", color="black", label="objective")
        axes.set_title(title)
        axes.set_xlabel("answered requests per second")
        axes.set_ylabel("milliseconds")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    write_plot(figure, path)
