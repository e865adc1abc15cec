"""What the platform prefers, for the level that was asked for."""

from __future__ import annotations

from framework.contracts.kernel_sets import KERNEL_SETS
from framework.contracts.model_runner import RunnerContext
from framework.contracts.platform import Platform
from framework.plugins.blame import blaming
from framework.plugins.sets import within


def may_round(context: RunnerContext) -> bool:
    """Whether the operator leaves it to the platform how exactly numbers are kept."""
    return context.dtype == "auto" and context.kernel_set == KERNEL_SETS[-1]


def ranked(context: RunnerContext, platform: Platform, kind: str) -> tuple[str, ...]:
    """Names of candidates of `kind`, best first."""
    with blaming(platform, f"ranking candidates of the kind {kind}"):
        names = tuple(platform.ranking(kind))
    return within(context.registry, kind, names, context.kernel_set)
