"""What of others' code a plugin replaces by its own."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple


class Place(NamedTuple):
    """owner: the name of a class in the module, "" of the module itself."""

    module: str
    owner: str
    name: str

    def __str__(self) -> str:
        return ".".join(part for part in self if part)


Names = Mapping[tuple[str, str], Mapping[str, Any]]
"""(module, class or "") -> what it holds, by name."""

_ELSEWHERE = {"sys", "builtins", "this", "antigravity"}
"""Not looked at: what counts of the first two is in `framework.testing.conformance.shared`."""


def of_core() -> Names:
    """The core's modules and their classes, but for the kit's own."""
    own = __package__ or "-"
    return _names(lambda name: name.partition(".")[0] == "framework" and not name.startswith(own))


def of_library() -> Names:
    """Public modules of the standard library, and their classes."""
    public = sys.stdlib_module_names - _ELSEWHERE
    return _names(lambda name: name.partition(".")[0] in public and not name.startswith("_"))


def _names(wanted: Callable[[str], bool]) -> Names:
    """Copies, made without a look at what they hold: this is done often."""
    seen: dict[tuple[str, str], Mapping[str, Any]] = {}
    for name, module in list(sys.modules.items()):
        if not isinstance(module, types.ModuleType) or not wanted(name):
            continue
        seen[name, ""] = inside = dict(vars(module))
        for attribute, value in inside.items():
            if isinstance(value, type) and value.__module__ == name:
                seen[name, attribute] = dict(vars(value))
    return seen


def replaced(before: Names, after: Names) -> Iterator[Place]:
    """What has another value, or none; and what a class has gained.  Of a class that was replaced
    itself, no members."""
    for (module, owner), names in before.items():
        if owner and after.get((module, ""), {}).get(owner) is not before[module, ""][owner]:
            continue
        now = after.get((module, owner), {})
        for name, value in names.items():
            # A submodule that was imported since is no patch; and abc keeps a registry of
            # subclasses, which an import fills.
            kept = isinstance(value, types.ModuleType) or name.startswith("_abc_")
            if not kept and now.get(name, before) is not value:
                yield Place(module, owner, name)
        if owner:
            gained = now.keys() - names.keys()
            yield from (
                Place(module, owner, n) for n in gained if not n.startswith(("__", "_abc_"))
            )


def by(before: Names, after: Names, package: str) -> Iterator[Place]:
    """Public functions and classes that `package` replaced, by its own or by another one with some
    arguments given.  (A library that it imports may replace what it needs to.)"""
    for place in replaced(before, after):
        module, owner, name = place
        value = after.get((module, owner), {}).get(name)
        was = before[module, owner].get(name)
        if name.startswith("_") or not (callable(was) or isinstance(was, classmethod)):
            continue
        if isinstance(value, functools.partial) or _top(value) == package:
            yield place


def _top(value: object) -> str:
    return str(getattr(value, "__module__", "")).partition(".")[0]


def put_back(before: Names, places: Iterable[Place]) -> None:
    """Make them what they were."""
    for module, owner, name in places:
        where: Any = sys.modules[module]
        setattr(getattr(where, owner) if owner else where, name, before[module, owner][name])
