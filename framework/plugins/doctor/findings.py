"""One thing that is wrong."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from framework.errors import FrameworkError, PluginError
from framework.plugins.records import Problem, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """code: short and stable, for programs.  severity: an error stops some start, a warning
    costs something.  mend: what to do about it."""

    code: str
    severity: Literal["error", "warning"]
    message: str
    mend: str
    plugin: str | None = None
    distribution: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def about(record: Record, code: str, message: str, mend: str, *, warning: bool = False) -> Finding:
    """A finding about one plugin."""
    return Finding(
        code=code,
        severity="warning" if warning else "error",
        message=message,
        mend=mend,
        plugin=record.key,
        distribution=record.distribution,
    )


def of_problem(problem: Problem) -> Finding:
    """What a registry noticed when it was made."""
    return Finding(
        code="list",
        severity="error" if problem.fatal else "warning",
        message=problem.message,
        mend=problem.mend or "correct the name",
        plugin=problem.plugin,
        distribution=problem.distribution,
    )


def of_error(code: str, error: FrameworkError, record: Record | None = None) -> Finding:
    """An error that a start would end with.  record: whose it is, where the error does not say."""
    if record is not None and not isinstance(error, PluginError):
        text = f"{record.key}: {error.message} (found: {error.found})"
        return about(record, code, text, f"expected: {error.expected}; correct its manifest")
    found = "" if error.found is None else f" (found: {error.found})"
    return Finding(
        code=code,
        severity="error",
        message=error.message + found,
        mend=error.mend or f"expected: {error.expected}",
        plugin=error.plugin if isinstance(error, PluginError) else None,
        distribution=error.distribution if isinstance(error, PluginError) else None,
    )
