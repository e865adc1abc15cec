"""No two endpoints answer one request.  A pure function, for whatever serves HTTP."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

from framework.errors import PluginError

ANY = "*"


@dataclass(frozen=True, slots=True)
class Route:
    """One route.  owner: kind:name@distribution.  method: "*" stands for all.  path: the whole,
    as routers write it, with {name} for a segment and {name:path} for all that follow."""

    owner: str
    method: str
    path: str


def check_routes(routes: Iterable[Route]) -> None:
    """Raises PluginError with both owners where one request could be answered by two plugins; it
    is never settled by who comes first.  Routes of one plugin are its own affair."""
    for one, other in combinations(list(routes), 2):
        if one.owner != other.owner and _one_method(one, other) and _meet(one, other):
            raise _collision(one, other)


def _one_method(one: Route, other: Route) -> bool:
    return ANY in (one.method, other.method) or one.method.upper() == other.method.upper()


def _meet(first: Route, second: Route) -> bool:
    """Whether some path fits both patterns."""
    one, other = (route.path.strip("/").split("/") for route in (first, second))
    for left, right in zip(one, other, strict=False):
        if _takes_all(left) or _takes_all(right):
            return True
        if left != right and not ("{" in left or "{" in right):
            return False
    return len(one) == len(other)


def _takes_all(segment: str) -> bool:
    return segment.startswith("{") and segment.endswith(":path}")


def _collision(one: Route, other: Route) -> PluginError:
    both = one.path if one.path == other.path else f"{one.path} ({other.path})"
    return PluginError(
        f"{other.owner} and {one.owner} both claim {other.method} {both}",
        plugin=other.owner,
        distribution=other.owner.partition("@")[2] or None,
        expected="one endpoint for each route",
        found=f"{one.owner} and {other.owner}",
        mend="give one of them a prefix of its own with `endpoint_prefixes`, or deny it",
    )
