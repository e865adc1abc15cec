"""Where the routes of endpoints lie, and that no two of them can answer one request.

Pure functions over values, for whatever serves HTTP.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from framework.errors import PluginError
from framework.plugins.records import Record

OWN_PREFIX = "/plugins"


@dataclass(frozen=True, slots=True)
class Route:
    """One route.  path: as routers write it, with {name} for a segment and {name:path} for all
    that follow.  record: whose it is."""

    record: Record
    method: str
    path: str


def prefix_of(record: Record, granted: Collection[str] = ()) -> str:
    """What stands before all routes of an endpoint: nothing for the first party and for those
    that the operator granted the root by name, else /plugins/NAME."""
    if record.first_party or record.name in granted:
        return ""
    return f"{OWN_PREFIX}/{record.name}"


def check_routes(routes: Iterable[Route]) -> None:
    """Raises PluginError, with both distributions, where one request could be answered by two
    plugins; it is never settled by who came first.  Routes of one plugin are its own affair."""
    for one, other in combinations(list(routes), 2):
        if one.record is other.record or one.method.upper() != other.method.upper():
            continue
        if _meet(_segments(one.path), _segments(other.path)):
            raise _collision(one, other)


def _segments(path: str) -> list[str]:
    return path.strip("/").split("/")


def _meet(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether some path fits both patterns."""
    for left, right in zip(one, other, strict=False):
        if _takes_all(left) or _takes_all(right):
            return True
        if left != right and not (_is_open(left) or _is_open(right)):
            return False
    return len(one) == len(other)


def _is_open(segment: str) -> bool:
    return "{" in segment


def _takes_all(segment: str) -> bool:
    return segment.startswith("{") and segment.endswith(":path}")


def _collision(one: Route, other: Route) -> PluginError:
    guest = other if one.record.first_party else one
    return PluginError(
        f"plugins {one.record.key} and {other.record.key} both answer "
        f"{one.method.upper()} {one.path}" + (f" ({other.path})" if other.path != one.path else ""),
        plugin=guest.record.key,
        distribution=guest.record.distribution,
        expected="one plugin for a route",
        found=f"{one.record.owner} and {other.record.owner}",
        mend=f"do not grant {guest.record.name} the root, which leaves its routes under "
        f"{OWN_PREFIX}/{guest.record.name}/, or deny one of them",
    )
