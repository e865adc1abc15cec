"""What is installed, from distribution metadata alone; nothing is imported.

Of a distribution that lies on the path twice (a checkout beside an installation, an
editable install beside its build leftovers) only the one that Python would use counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import importlib_metadata
from importlib_metadata import Distribution

from framework.errors import ConfigError
from framework.plugins.kinds import GROUP_PREFIX, KINDS, Kind, find_kind
from framework.plugins.near import did_you_mean
from framework.plugins.policy import first_party, normalize
from framework.plugins.records import Problem, Record, State

CORE = "framework"
_VALUE = re.compile(r"(?P<module>\w+(\.\w+)*)\s*:\s*(?P<attr>\w+(\.\w+)*)\s*(\[.*\])?$")


@dataclass(frozen=True, slots=True)
class Discovery:
    """Records in order of kind, name, distribution, and what was wrong on the way."""

    records: tuple[Record, ...]
    problems: tuple[Problem, ...]


def core_first_party() -> tuple[frozenset[str], tuple[Problem, ...]]:
    """The first party: the core itself and what its installed metadata names.

    Nothing else, with a problem, when the core is not installed.
    """
    try:
        requires = importlib_metadata.requires(CORE)
    except importlib_metadata.PackageNotFoundError:
        problem = Problem(
            message=f"distribution {CORE!r} is not installed: its metadata says which plugins "
            "are first-party, so all count as third parties",
            mend="pip install framework, or `pip install -e .` in a checkout",
        )
        return frozenset({CORE}), (problem,)
    return first_party(requires or ()) | {CORE}, ()


def split_value(value: str) -> tuple[str, str] | None:
    """("module", "attr") of "module:attr", or None."""
    match = _VALUE.match(value.strip())
    return (match["module"], match["attr"]) if match else None


def discover(
    kinds: Sequence[Kind] = KINDS,
    *,
    path: Sequence[str] | None = None,
    trusted: frozenset[str] = frozenset(),
) -> Discovery:
    """All plugins of all distributions on `path` (default: sys.path).

    trusted: normalized names of the first party.
    """
    records: list[Record] = []
    problems: list[Problem] = []
    for distribution in _distributions(path):
        found = _Entries(distribution, kinds, trusted)
        records += found.records
        problems += found.problems
    order = {kind.name: index for index, kind in enumerate(kinds)}
    records.sort(key=lambda record: (order[record.kind], record.name, record.owner))
    return Discovery(tuple(records), tuple(problems))


def ad_hoc_records(plugins: Mapping[str, str], kinds: Sequence[Kind] = KINDS) -> list[Record]:
    """Records of {"kind:name": "module:attr"}; ConfigError for any other form."""
    records = []
    for key, value in plugins.items():
        kind, colon, name = (part.strip() for part in str(key).partition(":"))
        if not (kind and colon and name) or not isinstance(value, str) or not split_value(value):
            raise ConfigError(
                f"ad-hoc plugin {key!r} is not understood",
                expected='"kind:name" = "module:attr"',
                found=f"{key!r} = {value!r}",
            )
        find_kind(kind, kinds)
        records.append(
            Record(
                kind=kind,
                name=name,
                distribution=None,
                version=None,
                value=value.strip(),
                origin="ad hoc",
            )
        )
    return records


def with_plugins(path: Sequence[str] | None) -> dict[str, Distribution]:
    """By name, the first of all distributions on `path` that has an entry point for us."""
    first: dict[str, Distribution] = {}
    known: set[str] = set()
    for distribution in _installed(path):
        # Reading one small file is cheap; the metadata of hundreds of others is not.
        if GROUP_PREFIX not in (_read(distribution, "entry_points.txt") or ""):
            continue
        name = _name(distribution)
        if name is not None and normalize(name) not in known:
            known.add(normalize(name))
            first[name] = distribution
    return first


def _distributions(path: Sequence[str] | None) -> Iterator[Distribution]:
    """Those with entry points for us, once each."""
    for name, distribution in with_plugins(path).items():
        same = _installed(path, name=name)
        # Sorting is stable: the first on the path, but an egg-info folder is a leftover of
        # a build and loses against what was installed.
        yield min(same or [distribution], key=lambda d: _location(d).endswith(".egg-info"))


def _installed(path: Sequence[str] | None, **name: str) -> list[Distribution]:
    where = {} if path is None else {"path": list(path)}
    return cast("list[Distribution]", list(importlib_metadata.distributions(**name, **where)))


def _read(distribution: Distribution, file: str) -> str | None:
    try:
        return distribution.read_text(file)
    except (OSError, UnicodeDecodeError):
        return None


def _name(distribution: Distribution) -> str | None:
    try:
        return distribution.name or None
    except Exception:  # a half-removed distribution; the library raises several kinds
        return None


def _version(distribution: Distribution) -> str | None:
    try:
        return distribution.version
    except Exception:
        return None


def _location(distribution: Distribution) -> str:
    return str(getattr(distribution, "_path", "") or "")


class _Entries:
    """Records and problems of one distribution's entry_points.txt."""

    def __init__(
        self, distribution: Distribution, kinds: Sequence[Kind], trusted: frozenset[str]
    ) -> None:
        self.records: list[Record] = []
        self.problems: list[Problem] = []
        self._name = _name(distribution) or "unknown"
        self._version = _version(distribution)
        self._location = _location(distribution)
        self._trusted = normalize(self._name) in trusted
        self._kinds = {kind.group: kind for kind in kinds}
        group, known = "", set[tuple[str, str]]()
        for number, line in self._lines(_read(distribution, "entry_points.txt") or ""):
            if line.startswith("[") and line.endswith("]"):
                group = line[1:-1].strip()
                self._check_group(group)
            elif group in self._kinds:
                name, equals, value = (part.strip() for part in line.partition("="))
                if not (name and equals):
                    self._problem(
                        f"line {number} of entry_points.txt is not name = value: {line!r}"
                    )
                elif (group, name) in known:
                    self._problem(f"[{group}] has {name!r} twice; the first counts")
                else:
                    known.add((group, name))
                    self._add(self._kinds[group], name, value)

    @staticmethod
    def _lines(text: str) -> Iterator[tuple[int, str]]:
        for number, line in enumerate(text.splitlines(), start=1):
            stripped = line.strip()
            if stripped and not stripped.startswith(("#", ";")):
                yield number, stripped

    def _check_group(self, group: str) -> None:
        if group.startswith(GROUP_PREFIX) and group not in self._kinds:
            self._problem(f"unknown entry-point group {group!r}{did_you_mean(group, self._kinds)}")

    def _problem(self, message: str) -> None:
        self.problems.append(
            Problem(message=f"{self._name} ({self._location}): {message}", distribution=self._name)
        )

    def _add(self, kind: Kind, name: str, value: str) -> None:
        record = Record(
            kind=kind.name,
            name=name,
            distribution=self._name,
            version=self._version,
            value=value,
            location=self._location,
            first_party=self._trusted,
        )
        if split_value(value) is None:
            record.move(State.FAILED, f"entry point value {value!r} is not of the form module:attr")
        self.records.append(record)
