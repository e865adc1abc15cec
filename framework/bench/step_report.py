"""What a step's measurement found: as tables, and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from framework.bench.plot import write_plot

if TYPE_CHECKING:
    from rich.table import Table

    from framework.bench.step import Profile, StepFigures

SHOWN = 15
"""Operators of a table and of a picture."""


def phase_table(figures: StepFigures) -> Table:
    """A row per phase, in the order of the step."""
    made = _table(("phase", "ms", "part"), f"{figures.requests} requests at {figures.context}")
    for name, spent in figures.phases.items():
        made.add_row(name, f"{spent:.3f}", f"{spent / figures.step_ms:.1%}")
    made.add_row("step", f"{figures.step_ms:.3f}", "")
    made.add_row("not the model", "", f"{figures.overhead:.1%}")
    return made


def operator_table(profile: Profile) -> Table:
    """The operators that take most."""
    made = _table(("operator", "calls a step", "ms a step"), "operators, under the profiler")
    for name, calls, spent in profile.operators[:SHOWN]:
        made.add_row(name, f"{calls:g}", f"{spent:.3f}")
    return made


def roofline_table(figures: StepFigures, profile: Profile) -> Table | None:
    """What the step reaches of what the machine gave; None if the runner tells neither."""
    work, machine = profile.work, profile.machine
    if work is None or machine is None:
        return None
    seconds = figures.step_ms * 1e-3
    made = _table(("", "a step", "reached", "machine", "part", "least ms"), "roofline")
    for name, amount, able, unit in (
        ("arithmetic", work["flops"], machine["flops_per_s"], "GFLOP"),
        ("memory", work["bytes"] + work["cache_bytes"], machine["bytes_per_s"], "GB"),
    ):
        made.add_row(
            name,
            f"{amount * 1e-9:.3f} {unit}",
            f"{amount / seconds * 1e-9:.1f} {unit}/s",
            f"{able * 1e-9:.1f} {unit}/s",
            f"{amount / seconds / able:.0%}",
            f"{amount / able * 1e3:.2f}",
        )
    return made


def _table(head: tuple[str, ...], title: str) -> Table:
    from rich.table import Table

    made = Table(*head, box=None, title=title, title_justify="left")
    for column in made.columns[1:]:
        column.justify = "right"
    return made


def plot_step(path: Path, figures: StepFigures, profile: Profile | None) -> None:
    """Write bars of phases and operators to `path`.  Raises ConfigError if that cannot be."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6), layout="constrained")
    parts = 1 if profile is None else 2
    axes = figure.add_subplot(parts, 1, 1)
    axes.barh([*figures.phases], [*figures.phases.values()], color="C0")
    axes.invert_yaxis()
    axes.set_title(
        f"{figures.requests} requests at {figures.context} tokens: {figures.step_ms:.2f} ms a "
        f"step, {figures.overhead:.1%} of it not the model"
    )
    axes.set_xlabel("milliseconds")
    if profile is not None:
        below = figure.add_subplot(parts, 1, 2)
        shown = profile.operators[:SHOWN]
        below.barh([name[:48] for name, _, _ in shown], [spent for *_, spent in shown], color="C1")
        below.invert_yaxis()
        below.set_xlabel("milliseconds a step, under the profiler")
    write_plot(figure, path)
