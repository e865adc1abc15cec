"""What is installed, from distribution metadata alone; nothing is imported."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import importlib_metadata

from framework.errors import ConfigError
from framework.plugins.distributions import Installed, installed
from framework.plugins.kinds import GROUP_PREFIX, KINDS, Kind, find_kind
from framework.plugins.near import did_you_mean
from framework.plugins.policy import first_party, normalize
from framework.plugins.records import Problem, Record, State
from framework.shown import shown

CORE = "framework"
_VALUE = re.compile(r"(?P<module>\w+(\.\w+)*)\s*:\s*(?P<attr>\w+(\.\w+)*)\s*(\[.*\])?$")
_LONGEST = 100
"""Characters of a plugin's name; a list has a line for each."""
_LOST = "\N{REPLACEMENT CHARACTER}"
_UNNAMED = re.compile(r"[\s:@,=*?\[\]]")
"""What means something where plugins are named: KIND:NAME@DISTRIBUTION, globs and lists of them."""


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
    return first_party(tuple(requires or ())) | {CORE}, ()


def split_value(value: str) -> tuple[str, str] | None:
    """("module", "attr") of "module:attr", or None."""
    match = _VALUE.match(value.strip())
    return (match["module"], match["attr"]) if match else None


def can_be_named(name: str) -> bool:
    """Whether lists and options can name a plugin so called, and a terminal can show it."""
    return len(name) <= _LONGEST and name.isprintable() and not _UNNAMED.search(name)


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
    for distribution in installed(path):
        if distribution.problem is not None:
            problems.append(
                Problem(
                    message=f"{distribution.name} ({distribution.location}): "
                    f"{distribution.problem}",
                    distribution=distribution.name,
                    mend="reinstall it, or remove the folder",
                )
            )
        if not distribution.has_plugins:
            continue
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
        named = bool(kind and colon and name) and can_be_named(name)
        if not named or not isinstance(value, str) or not split_value(value):
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


class _Entries:
    """Records and problems of one distribution's entry_points.txt."""

    def __init__(
        self, distribution: Installed, kinds: Sequence[Kind], trusted: frozenset[str]
    ) -> None:
        self.records: list[Record] = []
        self.problems: list[Problem] = []
        self._name = distribution.name
        self._version = distribution.version
        self._location = distribution.location
        self._flaw = distribution.problem
        self._trusted = normalize(self._name) in trusted
        self._kinds = {kind.group: kind for kind in kinds}
        group, known = "", set[tuple[str, str]]()
        for number, line in self._lines(distribution.entry_points):
            if line.startswith("[") and line.endswith("]"):
                group = line[1:-1].strip()
                self._check_group(group)
            elif line.startswith("[") or not group:
                group = ""  # what follows belongs to a group that nobody knows
                self._problem(
                    f"line {number} of entry_points.txt is neither [group] nor in one: "
                    f"{shown(line)}"
                )
            elif group in self._kinds:
                name, equals, value = (part.strip() for part in line.partition("="))
                if not (name and equals):
                    self._problem(
                        f"line {number} of entry_points.txt is not name = value: {shown(line)}"
                    )
                elif self._flaw is not None and _LOST in line:
                    continue  # no program reads the file, which has been told
                elif not can_be_named(name):
                    self._problem(
                        f"[{group}] has {shown(name, 80)}, which no list or option can name"
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
            self._problem(
                f"unknown entry-point group {shown(group)}{did_you_mean(group, self._kinds)}"
            )

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
        if self._flaw is not None:
            record.move(State.FAILED, self._flaw)
        elif split_value(value) is None:
            record.move(
                State.FAILED, f"entry point value {shown(value)} is not of the form module:attr"
            )
        self.records.append(record)
