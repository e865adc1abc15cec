"""What a platform prefers, as far as the configuration's `kernel_set` lets it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from framework.contracts.kernel_sets import KERNEL_SETS

if TYPE_CHECKING:
    from framework.contracts.kernel_sets import KernelSet
    from framework.plugins.registry import PluginRegistry


def within(
    registry: PluginRegistry, kind: str, ranking: Iterable[str], limit: KernelSet
) -> tuple[str, ...]:
    """Those names of a platform's ranking whose manifests put them into `limit` or a set before
    it; nothing is imported.  The others keep their place by the rank of the plugin."""
    last = KERNEL_SETS[-1]
    told = {
        record.name: record.facts.facts.get("set", last)
        for record in registry.records(kind)
        if record.facts is not None
    }
    allowed = KERNEL_SETS[: KERNEL_SETS.index(limit) + 1]
    return tuple(name for name in ranking if told.get(name, last) in allowed or limit == last)
