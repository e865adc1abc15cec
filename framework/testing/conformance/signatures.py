"""Whether a class can be called as its contract says."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from framework.contracts.hooks import PROJECT

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def misfits(cls: type, contract: type) -> list[str]:
    """One sentence for each method that a call made for the contract would not reach."""
    found: list[str] = []
    for name, promised in public_methods(contract):
        if hasattr(promised, f"{PROJECT}_spec"):
            continue  # pluggy calls a hook with those arguments that it names
        actual = inspect.getattr_static(cls, name, None)
        if isinstance(promised, property) or not inspect.isfunction(promised):
            continue
        if isinstance(actual, (staticmethod, classmethod)) or not callable(actual):
            found.append(f"{name} is a {type(actual).__name__}, not a method")
            continue
        found += [f"{name}{problem}" for problem in _compare(promised, actual)]
    return found


def public_methods(contract: type) -> Iterator[tuple[str, object]]:
    """Name and function of the public methods that a contract adds to the base of all."""
    seen: set[str] = set()
    for cls in contract.__mro__:
        if not cls.__module__.startswith("framework.contracts") or cls.__name__ == "Contract":
            continue
        for name, value in vars(cls).items():
            callable_ = inspect.isfunction(value) or isinstance(value, property)
            if callable_ and not name.startswith("_") and name not in seen:
                seen.add(name)
                yield name, value


def _compare(promised: object, actual: object) -> Iterator[str]:
    assert callable(promised)
    assert callable(actual)
    try:
        mine = inspect.signature(actual).parameters.values()
    except (TypeError, ValueError):  # written in C: nothing to compare
        return
    theirs = list(inspect.signature(promised).parameters.values())
    takes_any = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in mine)
    takes_names = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in mine)
    own = {p.name: p for p in mine}
    slots = [p for p in mine if p.kind in _POSITIONAL]
    wanted = [p for p in theirs if p.kind in _POSITIONAL]
    if len(slots) < len(wanted) and not takes_any:
        yield f" takes {len(slots)} positional arguments, is given {len(wanted)}"
        return
    for index, (slot, given) in enumerate(zip(slots, wanted, strict=False)):
        # The first is self.  Names matter where a call may use them.
        if index and slot.name != given.name:
            yield f": argument {index} is called {slot.name!r} and not {given.name!r}"
        if given.default is not inspect.Parameter.empty and (
            slot.default is inspect.Parameter.empty
        ):
            yield f": argument {given.name!r} needs a default"
    for extra in slots[len(wanted) :]:
        if extra.default is inspect.Parameter.empty:
            yield f": argument {extra.name!r} is given by no caller"
    for given in theirs:
        by_name = given.kind is inspect.Parameter.KEYWORD_ONLY
        if by_name and given.name not in own and not takes_names:
            yield f" lacks the argument {given.name!r}"
