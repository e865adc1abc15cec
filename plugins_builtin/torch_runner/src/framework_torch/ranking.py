"""What the platform prefers, for the level that was asked for."""

from __future__ import annotations

from framework.contracts.model_runner import RunnerContext
from framework.contracts.platform import Platform
from framework.plugins.blame import blaming
from framework.plugins.sets import within


def ranked(context: RunnerContext, platform: Platform, kind: str) -> tuple[str, ...]:
    """Names of candidates of `kind`, best first."""
    with blaming(platform, f"ranking candidates of the kind {kind}"):
        names = tuple(platform.ranking(kind))
    return within(context.registry, kind, names, context.kernel_set)
