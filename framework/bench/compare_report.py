"""What a comparison found: tables of medians and of goals, and JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from framework.bench import goals
from framework.bench.goals import GOALS, Goal

if TYPE_CHECKING:
    from rich.table import Table

    from framework.bench.compare import Samples

FIRST = (goals.OURS, goals.INT8, goals.GGUF, goals.UNCACHED)
COLUMNS = (
    (goals.RATE, "tokens/s"),
    (goals.DECODE, "decode tokens/s"),
    (goals.TTFT, "TTFT s"),
    (goals.STEP, "step ms"),
    ("peak_mib", "peak MiB"),
)


def table(samples: Samples) -> Table:
    """Medians, a row per task and engine; ratio: ours over it, in tokens per second."""
    made = _table(("task", "engine", "rounds", *(head for _, head in COLUMNS), "ours / it"), 2)
    for task, subjects in samples.metrics.items():
        for subject in sorted(subjects, key=_order):
            cells = [_cell(samples.median(task, subject, metric)) for metric, _ in COLUMNS]
            mine = samples.median(task, goals.OURS, goals.RATE)
            other = samples.median(task, subject, goals.RATE)
            ratio = f"{mine / other:.2f}" if mine and other and subject != goals.OURS else ""
            made.add_row(task, subject, str(len(subjects[subject])), *cells, ratio)
    return made


def goal_table(samples: Samples, wanted: Sequence[Goal] = GOALS) -> Table:
    """Goals, the ratio that was reached, and whether that is enough."""
    made = _table(("goal", "reached", ""), 1)
    for goal, ratio in reached(samples, wanted):
        word = "not measured" if ratio is None else "met" if goal.met(ratio) else "missed"
        made.add_row(goal.text, "" if ratio is None else f"{ratio:.2f}", word)
    return made


def reached(
    samples: Samples, wanted: Sequence[Goal] = GOALS
) -> Iterator[tuple[Goal, float | None]]:
    """Each goal of a task that was done, and its ratio."""
    for goal in wanted:
        if goal.task in samples.metrics:
            yield goal, goal.ratio(samples)


def as_json(samples: Samples, settings: dict[str, Any]) -> dict[str, Any]:
    """All rounds, and where it was."""
    from framework import __version__

    return {
        "version": __version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "settings": settings,
        "rounds": samples.metrics,
        "missing": [
            {"task": task, "engine": subject, "reason": reason}
            for (task, subject), reason in samples.missing.items()
        ],
        "goals": [
            {"goal": goal.text, "ratio": ratio, "met": ratio is not None and goal.met(ratio)}
            for goal, ratio in reached(samples)
        ],
    }


def _order(subject: str) -> tuple[int, str]:
    """Ours first."""
    return (FIRST.index(subject) if subject in FIRST else len(FIRST), subject)


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def _table(head: Sequence[str], left: int) -> Table:
    from rich.table import Table

    made = Table(*head, box=None)
    for column in made.columns[left:]:
        column.justify = "right"
    return made
