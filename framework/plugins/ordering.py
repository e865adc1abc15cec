"""The order of plugins of which many run: `before` / `after`, then rank, then first-party ones
before others, then name."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from framework.errors import PluginError
from framework.plugins.records import Record


def by_rank(record: Record) -> tuple[int, bool, str, str]:
    """Sort key: higher rank first, then first-party ones, then name, then distribution.

    A name decides only among equals: installing a third party's plugin must not change what is
    chosen because of how it is spelt.
    """
    return (-record.rank, not record.first_party, record.name, record.owner)


def in_order(records: Sequence[Record]) -> list[Record]:
    """Sort by the constraints of the manifests; names that are not there are ignored.

    Kahn's topological sort with a heap, so that free choices go by rank and name.
    Raises PluginError that names the plugins of a cycle.
    """
    ranked = sorted(records, key=by_rank)
    index = {record.name: position for position, record in enumerate(ranked)}
    followers: list[set[int]] = [set() for _ in ranked]
    for position, record in enumerate(ranked):
        if record.facts is None:
            continue
        for name in record.facts.before:
            if name in index:
                followers[position].add(index[name])
        for name in record.facts.after:
            if name in index:
                followers[index[name]].add(position)
    waits = [0] * len(ranked)
    for targets in followers:
        for target in targets:
            waits[target] += 1
    free = [position for position, count in enumerate(waits) if count == 0]
    heapq.heapify(free)
    done: list[int] = []
    while free:
        position = heapq.heappop(free)
        done.append(position)
        for target in followers[position]:
            waits[target] -= 1
            if waits[target] == 0:
                heapq.heappush(free, target)
    if len(done) < len(ranked):
        stuck = [ranked[position] for position in _cycle(followers, set(done))]
        raise PluginError(
            f"before / after of these plugins form a cycle: {', '.join(r.key for r in stuck)}",
            plugin=stuck[0].key,
            distribution=stuck[0].distribution,
            mend="deny one of them with FRAMEWORK_PLUGINS_DENY, or correct its manifest",
        )
    return [ranked[position] for position in done]


def _cycle(followers: list[set[int]], done: set[int]) -> list[int]:
    """Positions on cycles, without those that merely wait for a cycle to end."""
    left = set(range(len(followers))) - done
    while ends := {position for position in left if not followers[position] & left}:
        left -= ends
    return sorted(left)
