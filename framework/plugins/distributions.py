"""The installed distributions that have plugins, read as quickly as hundreds of them allow.

Of a distribution that lies on the path twice (a checkout beside an installation, an editable
install beside its build leftovers) only the one that Python would use counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import importlib_metadata
from importlib_metadata import Distribution

from framework.plugins.kinds import GROUP_PREFIX
from framework.plugins.policy import normalize

_LEFTOVER = ".egg-info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """One distribution.  version: None if its metadata does not say.  location: its metadata
    folder.  entry_points: the text of that file.  hidden: metadata folders of the same name that
    do not count, leftovers of builds left out."""

    name: str
    version: str | None
    location: str
    entry_points: str
    hidden: tuple[str, ...] = ()

    @property
    def has_plugins(self) -> bool:
        """It has an entry point for us."""
        return GROUP_PREFIX in self.entry_points


def installed(path: Sequence[str] | None) -> list[Installed]:
    """Every name on `path` (default: sys.path) of which some metadata folder has an entry point
    for us, in the order of the path.  What counts of it may have none."""
    where = {} if path is None else {"path": list(path)}
    same: dict[str, list[tuple[Distribution, str]]] = {}
    for found in importlib_metadata.distributions(**where):
        # Reading one small file is cheap; the metadata of hundreds of others is not.
        distribution = cast("Distribution", found)
        text = _read(distribution, "entry_points.txt") or ""
        same.setdefault(_stem(distribution), []).append((distribution, text))
    listed = (_one(group) for group in same.values() if any(GROUP_PREFIX in t for _, t in group))
    return [entry for entry in listed if entry is not None]


def any_has_group(group: str) -> bool:
    """Whether some distribution has an entry point of this group; looks at no more than needed."""
    heading = f"[{group}]"
    return any(
        heading in (_read(cast("Distribution", found), "entry_points.txt") or "")
        for found in importlib_metadata.distributions()
    )


def undecodable() -> list[str]:
    """Metadata folders on sys.path whose entry_points.txt is not UTF-8."""
    found = []
    for distribution in importlib_metadata.distributions():
        try:
            distribution.read_text("entry_points.txt")
        except UnicodeDecodeError:
            found.append(_location(cast("Distribution", distribution)))
        except OSError:
            continue
    return found


def _one(group: list[tuple[Distribution, str]]) -> Installed | None:
    """What counts of one name: the first on the path, but an egg-info folder is a leftover of a
    build and loses against what was installed.  None if it does not say its name."""
    group.sort(key=lambda pair: _location(pair[0]).endswith(_LEFTOVER))
    (distribution, text), *others = group
    name, version = _head(distribution)
    if name is None:
        return None
    places = [_location(other) for other, _ in others]
    return Installed(
        name=name,
        version=version,
        location=_location(distribution),
        entry_points=text,
        hidden=tuple(place for place in places if not place.endswith(_LEFTOVER)),
    )


def _stem(distribution: Distribution) -> str:
    """The name as its metadata folder has it, normalized."""
    folder = _location(distribution).replace("\\", "/").rstrip("/").rpartition("/")[2]
    return normalize(folder.rpartition(".")[0].partition("-")[0])


def _head(distribution: Distribution) -> tuple[str | None, str | None]:
    """Name and version.  The email parser of the standard library is exact and takes a
    millisecond for each; these two fields are never folded."""
    text = next(filter(None, (_read(distribution, f) for f in ("METADATA", "PKG-INFO", ""))), "")
    fields = dict(_fields(text))
    return fields.get("name"), fields.get("version")


def _fields(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        if not line.strip():
            return
        key, colon, value = line.partition(":")
        if colon and value.strip():
            yield key.lower(), value.strip()


def _read(distribution: Distribution, file: str) -> str | None:
    try:
        return distribution.read_text(file)
    except (OSError, UnicodeDecodeError):
        return None


def _location(distribution: Distribution) -> str:
    return str(getattr(distribution, "_path", "") or "")
