"""`make docs`: the surface of every stable contract, kept in tests/conformance/contracts.json.

Whatever a plugin of a stable kind can be handed or must give back is written down there.  What is
removed or changed needs a new major version of the kind, what is added and neutral a new minor
one; without it the snapshot is not rewritten.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from types import ModuleType

from framework.contracts.base import Contract
from framework.plugins.kinds import KINDS, Kind, Stability
from tools.surface import (
    Field,
    Method,
    fields_of,
    method_of,
    methods_of,
    module_of,
    own_classes,
    public_names,
    signature_of,
    types_of,
)

FILE = Path(__file__).parents[1] / "tests" / "conformance" / "contracts.json"
MEND = "run `make docs`"

Surface = Mapping[str, str]
"""Name of each part -> what it is.  A text that begins with "required" is of something that who
wrote a plugin before cannot have: a method to be written, a field to be given."""


class Due(IntEnum):
    """The version that a change asks for."""

    NOTHING = 0
    MINOR = 1
    MAJOR = 2


@dataclass(frozen=True, slots=True)
class Change:
    """One part that is not what it was."""

    due: Due
    text: str


@dataclass(frozen=True, slots=True)
class Frozen:
    """A contract as it was written down, or as it is now."""

    version: str
    surface: Surface


def stable_contracts(kinds: Sequence[Kind] = KINDS) -> dict[str, Frozen]:
    """The stable contracts of the code, by kind."""
    return {
        kind.name: Frozen(kind.version, surface_of(kind))
        for kind in kinds
        if kind.stability is Stability.STABLE
    }


def surface_of(kind: Kind) -> dict[str, str]:
    """Everything public of a contract's module, and of the types that it mentions."""
    module = module_of(kind)
    found: dict[str, str] = {}
    for name, _ in public_names(module):
        found[name] = _value(module, name)
    for name, cls in own_classes(module):
        found |= _class(name, cls)
    for cls in types_of(kind):
        found |= _class(f"{cls.__module__.rpartition('.')[2]}.{cls.__name__}", cls)
    return dict(sorted(found.items()))


def _class(name: str, cls: type) -> Iterator[tuple[str, str]]:
    yield name, f"class({', '.join(base.__name__ for base in cls.__bases__)})"
    for field in fields_of(cls):
        yield f"{name}.{field.name}", _field(field)
    made = [method_of(cls, "__init__")] if cls is Contract else []
    for method in [*made, *methods_of(cls)]:
        yield f"{name}.{method.name}", _method(method)


def _method(method: Method) -> str:
    parts = ["required"] if method.required else []
    parts += ["async"] if method.asynchronous else []
    return " ".join([*parts, method.decorator or "method", method.signature])


def _field(field: Field) -> str:
    parts = ["required field" if field.required else "field", field.type]
    parts += ["=", field.default] if field.default is not None else []
    parts += ["since", field.since] if field.since is not None else []
    parts += ["neutral", field.neutral] if field.neutral is not None else []
    return " ".join(parts)


def _value(module: ModuleType, name: str) -> str:
    """Of an alias its source, of a constant its type: its value may grow."""
    value = vars(module)[name]
    if inspect.isfunction(value):
        return f"function {signature_of(value)}"
    if not isinstance(value, type) and type(value).__module__ not in ("types", "typing"):
        return f"constant {type(value).__name__}"
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return f"alias {ast.unparse(node.value)}"
    return "alias"


def changes(old: Surface, new: Surface) -> list[Change]:
    """What became of each part, the gravest first."""
    found = [Change(Due.MAJOR, f"{name} is gone") for name in old if name not in new]
    found += [
        Change(Due.MAJOR, f"{name} was {old[name]!r} and is {new[name]!r}")
        for name in old
        if name in new and old[name] != new[name]
    ]
    for name in new:
        if name not in old:
            found.append(_added(name, old, new))
    return sorted(found, key=lambda change: -change.due)


def _added(name: str, old: Surface, new: Surface) -> Change:
    """Of a type that is new as a whole nobody was promised anything."""
    owner = name.rpartition(".")[0]
    if new[name].startswith("required ") and owner in old:
        return Change(
            Due.MAJOR, f"{name} is new, without a neutral default: plugins of today cannot have it"
        )
    return Change(Due.MINOR, f"{name} is new")


def problems(old: Mapping[str, Frozen], new: Mapping[str, Frozen]) -> list[str]:
    """Why `new` must not be written down in place of `old`, a sentence per kind."""
    found = []
    for name, was in old.items():
        if name not in new:
            found.append(f"{name} was stable and is so no more: a stable contract is kept")
            continue
        found += _problems_of(name, was, new[name])
    return found


def _problems_of(name: str, was: Frozen, now: Frozen) -> Iterator[str]:
    told = changes(was.surface, now.surface)
    due = max((change.due for change in told), default=Due.NOTHING)
    needed = _least_version(was.version, due)
    if _numbers(now.version) < _numbers(needed):
        listed = "".join(f"\n  {change.text}" for change in told if change.due is due)
        yield (
            f"{name} {was.version} needs a new {due.name.lower()} version: set "
            f'version="{needed}" in its row of framework/plugins/kinds.py{listed}'
        )
    if due is not Due.MAJOR:
        yield from _wrong_since(name, was.surface, now)


def _wrong_since(name: str, old: Surface, now: Frozen) -> Iterator[str]:
    """A new field of the kind's own query says which version brought it."""
    for part, text in now.surface.items():
        since = text.partition(" since ")[2].split(" ")[0]
        own = part.count(".") == 1
        if part not in old and own and since and since != now.version:
            yield f'{name}: {part} came with this version: write since="{now.version}"'


def _least_version(version: str, due: Due) -> str:
    major, minor = _numbers(version)
    if due is Due.MAJOR:
        return f"{major + 1}.0"
    return f"{major}.{minor + 1}" if due is Due.MINOR else version


def _numbers(version: str) -> tuple[int, int]:
    major, minor = version.split(".")
    return int(major), int(minor)


def read(file: Path = FILE) -> dict[str, Frozen]:
    """What was written down."""
    if not file.exists():
        return {}
    rows = json.loads(file.read_text(encoding="utf-8"))
    return {name: Frozen(row["version"], row["surface"]) for name, row in rows.items()}


def write(contracts: Mapping[str, Frozen], file: Path = FILE) -> list[str]:
    """Write down, unless a version is due; then the problems are returned, and nothing written."""
    wrong = problems(read(file), contracts)
    if not wrong:
        rows = {
            name: {"version": frozen.version, "surface": dict(frozen.surface)}
            for name, frozen in sorted(contracts.items())
        }
        file.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return wrong


def main() -> None:
    """Write the snapshot, or end with what is due."""
    wrong = write(stable_contracts())
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
