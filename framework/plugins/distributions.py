"""The installed distributions that have plugins, read as quickly as hundreds of them allow.

Of a distribution that lies on the path twice (a checkout beside an installation, an editable
install beside its build leftovers) only the one that Python would use counts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import importlib_metadata
from importlib_metadata import Distribution

from framework.plugins.kinds import GROUP_PREFIX
from framework.plugins.policy import normalize
from framework.shown import in_a_line, shown

_LEFTOVER = ".egg-info"
_NAME = re.compile(r"[A-Z0-9](?:[A-Z0-9._-]{0,198}[A-Z0-9])?\Z", re.IGNORECASE | re.ASCII)
"""What the core metadata specification takes for a name, of a length that can be read."""
_LONGEST_VERSION = 60
NOT_UTF8 = "entry_points.txt is not UTF-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """One distribution.  version: None if its metadata does not say.  location: its metadata
    folder.  entry_points: the text of that file, as far as it can be read.  hidden: metadata
    folders of the same name that do not count, leftovers of builds left out.  problem: why it has
    no plugins that could be used, or None."""

    name: str
    version: str | None
    location: str
    entry_points: str
    hidden: tuple[str, ...] = ()
    problem: str | None = None

    @property
    def has_plugins(self) -> bool:
        """It has an entry point for us."""
        return GROUP_PREFIX in self.entry_points


def installed(path: Sequence[str] | None) -> list[Installed]:
    """Every name on `path` (default: sys.path) of which some metadata folder has an entry point
    for us, in the order of the path.  What counts of it may have none."""
    where = {} if path is None else {"path": list(path)}
    same: dict[str, list[_Entries]] = {}
    for found in importlib_metadata.distributions(**where):
        # Reading one small file is cheap; the metadata of hundreds of others is not.
        distribution = cast("Distribution", found)
        same.setdefault(_stem(distribution), []).append(_entries(distribution))
    return [_one(group) for group in same.values() if any(each.concern for each in group)]


def any_has_group(group: str) -> bool:
    """Whether some distribution has an entry point of this group; looks at no more than needed."""
    heading = f"[{group}]"
    return any(
        heading in _entries(cast("Distribution", found)).text
        for found in importlib_metadata.distributions()
    )


def unreadable() -> list[str]:
    """A sentence for each entry_points.txt on sys.path at which every program fails that looks
    for entry points."""
    every = (_entries(cast("Distribution", each)) for each in importlib_metadata.distributions())
    return [f"{each.flaw} in {_location(each.distribution)}" for each in every if each.flaw]


@dataclass(frozen=True, slots=True)
class _Entries:
    """The entry_points.txt of a metadata folder; text: "" without one.  flaw: what is wrong with
    the file, or None."""

    distribution: Distribution
    text: str
    flaw: str | None = None

    @property
    def concern(self) -> bool:
        """It has an entry point for us, or nobody can tell."""
        return self.flaw is not None or GROUP_PREFIX in self.text


def _entries(distribution: Distribution) -> _Entries:
    file = "entry_points.txt"
    try:
        text = distribution.read_text(file)
    except UnicodeDecodeError as error:
        return _Entries(distribution, error.object.decode("utf-8", "replace"), NOT_UTF8)
    except OSError:
        text = None
    if text is None and os.path.lexists(os.path.join(_location(distribution), file)):
        return _Entries(distribution, "", f"{file} cannot be read")
    return _Entries(distribution, text or "")


def _one(group: list[_Entries]) -> Installed:
    """What counts of one name: the first on the path, but an egg-info folder is a leftover of a
    build and loses against what was installed."""
    group.sort(key=lambda each: _location(each.distribution).endswith(_LEFTOVER))
    first, *others = group
    name, version = _head(first.distribution)
    problem = None
    if first.flaw is not None:
        problem = f"{first.flaw}, so that nobody can use its plugins"
    elif name is None:
        problem = "its metadata does not say its name, so that its plugins are left out"
    elif not _NAME.match(name):
        problem = f"its metadata says a name that none can have, {shown(name, 80)}"
        name = None
    places = [_location(other.distribution) for other in others]
    return Installed(
        name=name or _stem(first.distribution),
        version=None if version is None else in_a_line(version, _LONGEST_VERSION),
        location=_location(first.distribution),
        entry_points=first.text if name is not None else "",
        problem=problem,
        hidden=tuple(place for place in places if not place.endswith(_LEFTOVER)),
    )


def _stem(distribution: Distribution) -> str:
    """The name as its metadata folder has it, normalized."""
    folder = _location(distribution).replace("\\", "/").rstrip("/").rpartition("/")[2]
    return normalize(folder.rpartition(".")[0].partition("-")[0])


def _head(distribution: Distribution) -> tuple[str | None, str | None]:
    """Name and version, whatever else is no UTF-8.  The email parser of the standard library is
    exact and takes a millisecond for each; these two fields are never folded."""
    text = next(filter(None, (_text(distribution, f) for f in ("METADATA", "PKG-INFO", ""))), "")
    fields = dict(_fields(text))
    return fields.get("name"), fields.get("version")


def _fields(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        if not line.strip():
            return
        key, colon, value = line.partition(":")
        if colon and value.strip():
            yield key.lower(), value.strip()


def _text(distribution: Distribution, file: str) -> str | None:
    try:
        return distribution.read_text(file)
    except OSError:
        return None
    except UnicodeDecodeError as error:
        return error.object.decode("utf-8", "replace")


def _location(distribution: Distribution) -> str:
    return str(getattr(distribution, "_path", "") or "")
