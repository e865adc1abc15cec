"""The plugins that one configuration can use, as a value that processes and files compare."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import importlib_metadata
import msgspec

from framework.errors import PluginError
from framework.plugins.discovery import CORE
from framework.plugins.installed import hash_of
from framework.plugins.kinds import Scope
from framework.plugins.records import Record
from framework.plugins.registry import PluginRegistry

Choices = Mapping[str, Sequence[str]]
"""kind -> names that the operator chose."""

_CORE_ROW = "core"


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One plugin.  entry_point: "module:attr".  contract: the range of its manifest, None while
    unknown.  files: a hash of what its distribution has installed, None where no file was found."""

    kind: str
    name: str
    distribution: str | None
    version: str | None
    entry_point: str | None
    contract: str | None
    scopes: tuple[str, ...]
    files: str | None

    @property
    def key(self) -> str:
        """kind:name@distribution."""
        return f"{self.kind}:{self.name}@{self.distribution or 'ad-hoc'}"


@dataclass(frozen=True, slots=True)
class Difference:
    """A field of one row that differs; field "plugin": the row is on one side only."""

    key: str
    field: str
    mine: object
    other: object


class ResolvedSet(msgspec.Struct, frozen=True, kw_only=True):
    """All plugins that may be used, and the core itself, sorted by their keys.

    It is made of texts alone, so that msgspec can pack it for any way to another process.
    """

    rows: tuple[Row, ...]

    def for_scopes(self, scopes: Iterable[str]) -> ResolvedSet:
        """The rows of a process of these scopes."""
        wanted = set(scopes)
        return ResolvedSet(rows=tuple(row for row in self.rows if wanted & {*row.scopes}))

    @property
    def fingerprint(self) -> str:
        """sha256 over all rows, hexadecimal."""
        return hashlib.sha256(msgspec.msgpack.encode(self)).hexdigest()

    def compare(self, other: ResolvedSet) -> tuple[Difference, ...]:
        """What differs, row by row and field by field; empty for equal sets."""
        mine, others = ({row.key: row for row in rows} for rows in (self.rows, other.rows))
        found = []
        for key in sorted(mine.keys() | others.keys()):
            if key not in mine or key not in others:
                found.append(Difference(key, "plugin", key in mine, key in others))
                continue
            for field in Row.__struct_fields__:
                pair = getattr(mine[key], field), getattr(others[key], field)
                if pair[0] != pair[1]:
                    found.append(Difference(key, field, *pair))
        return tuple(found)


def show_differences(differences: Sequence[Difference], mine: str, other: str) -> str:
    """One line per row that differs; `mine` and `other` name the two sides."""
    lines: dict[str, list[str]] = {}
    for difference in differences:
        if difference.field == "plugin":
            text = f"only in {mine if difference.mine else other}"
        else:
            sides = ((mine, difference.mine), (other, difference.other))
            text = f"{difference.field} " + ", ".join(
                f"{_short(value)} in {side}" for side, value in sides
            )
        lines.setdefault(difference.key, []).append(text)
    return "\n".join(f"    {key}: {'; '.join(texts)}" for key, texts in lines.items())


def _short(value: object) -> str:
    if isinstance(value, tuple):
        return "+".join(map(str, value)) or "none"
    text = "unknown" if value is None else str(value)
    return text[:12] if len(text) == 64 else text  # a hash


def resolve_plugins(registry: PluginRegistry, choices: Choices | None = None) -> ResolvedSet:
    """The plugins that a configuration can use, whatever process they run in.

    Of a kind of which one runs: the chosen one, or all candidates.  Of the others: the chosen
    ones and all that the policy admits.  Reads every file of their distributions, 5 ms per MB.
    Raises PluginError as `PluginRegistry.find` does.
    """
    records = [
        record
        for kind in registry.kinds
        if kind.contract is not None
        for record in registry.selectable(kind.name, (choices or {}).get(kind.name, ()))
    ]
    hashes = _Hashes(registry.records())
    rows = [_row(registry, record, hashes) for record in records]
    return ResolvedSet(rows=tuple(sorted([*rows, _core_row()], key=lambda row: row.key)))


def _row(registry: PluginRegistry, record: Record, hashes: _Hashes) -> Row:
    return Row(
        kind=record.kind,
        name=record.name,
        distribution=record.distribution,
        version=record.version,
        entry_point=record.value,
        contract=record.facts.contract if record.facts else None,
        scopes=tuple(sorted(record.scopes(registry.kind(record.kind)))),
        files=hashes.of(record),
    )


def _core_row() -> Row:
    try:
        version = importlib_metadata.version(CORE)
    except importlib_metadata.PackageNotFoundError:
        version = None
    scopes = tuple(sorted(scope.value for scope in Scope))
    return Row(
        kind=_CORE_ROW,
        name=CORE,
        distribution=CORE,
        version=version,
        entry_point=None,
        contract=None,
        scopes=scopes,
        files=hash_of(None, [CORE]),
    )


class _Hashes:
    """Hashes by distribution, each made once.  All its plugins share it, used or not: what one
    module imports from another is part of it."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._modules: dict[str | None, list[str]] = {}
        self._known: dict[str | None, str | None] = {}
        for record in records:
            self._modules.setdefault(record.location, []).append(_module(record))

    def of(self, record: Record) -> str | None:
        if record.location is None:
            return hash_of(None, [_module(record)])
        if record.location not in self._known:
            modules = self._modules[record.location]
            self._known[record.location] = hash_of(record.location, modules)
        return self._known[record.location]


def _module(record: Record) -> str:
    return record.value.partition(":")[0].strip()


def check_equal(
    mine: ResolvedSet, other: ResolvedSet, *, names: tuple[str, str], mend: str
) -> None:
    """Raises PluginError with the rows that differ.  names: what the two sides are called."""
    differences = mine.compare(other)
    if not differences:
        return
    first = differences[0].key
    raise PluginError(
        f"the plugins of {names[0]} and of {names[1]} differ:\n"
        + show_differences(differences, *names),
        plugin=first.partition("@")[0],
        distribution=first.partition("@")[2],
        expected=f"the set {other.fingerprint[:12]} of {names[1]}",
        found=f"{mine.fingerprint[:12]}",
        mend=mend,
    )
