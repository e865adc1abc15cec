"""What metadata alone tells: modules that are gone, metadata twice, unmet dependencies."""

from __future__ import annotations

import importlib.util
import json
import os
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import PathFinder
from typing import cast
from urllib.parse import urlsplit
from urllib.request import url2pathname

import importlib_metadata
from importlib_metadata import Distribution
from packaging.requirements import InvalidRequirement, Requirement

from framework.plugins.discovery import split_value
from framework.plugins.distributions import installed
from framework.plugins.doctor.findings import Finding, about
from framework.plugins.kinds import GROUP_PREFIX
from framework.plugins.policy import normalize
from framework.plugins.records import Record


def stale_entry_points(records: Iterable[Record]) -> Iterator[Finding]:
    """Entry points whose module does not exist any more.  Imports nothing."""
    for record in records:
        target = split_value(record.value)
        if target is None or record.origin == "registered":
            continue
        missing = _missing(target[0])
        if missing is None:
            continue
        if record.distribution is None:
            mend = f"correct {record.value}, or put the folder of {missing} on PYTHONPATH"
        else:
            mend = (
                f"pip install --force-reinstall {record.distribution}; where it was removed by "
                f"hand: pip uninstall {record.distribution}"
            )
        yield about(record, "stale", f"{record.key}: module {missing!r} is not there", mend)


def _missing(module: str) -> str | None:
    """The first part of a dotted module that the import system does not find."""
    parts = module.split(".")
    try:
        spec = importlib.util.find_spec(parts[0])
    except (ImportError, ValueError, AttributeError):
        spec = None
    name = parts[0]
    for part in parts[1:]:
        if spec is None or spec.submodule_search_locations is None:
            return f"{name}.{part}" if spec is not None else name
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    return name if spec is None else None


def outdated_installs(search_path: Sequence[str] | None) -> Iterator[Finding]:
    """Editable installs whose pyproject.toml names other plugins than when it was installed: the
    sources are those of now, the entry points those of then."""
    for found in installed(search_path):
        source = _editable_source(found.location) if found.problem is None else None
        now = _declared(source) if source is not None else None
        if source is None or now is None:
            continue
        then = _listed(found.location)
        if now == then:
            continue
        changed = sorted(key for key in now.keys() | then.keys() if now.get(key) != then.get(key))
        yield Finding(
            code="outdated",
            severity="error",
            message=f"{found.name} was installed before its pyproject.toml changed: "
            f"{', '.join(changed)}",
            mend=f"pip install -e {source}",
            distribution=found.name,
        )


def _editable_source(location: str) -> str | None:
    """The folder that an editable install points to, or None."""
    try:
        text = Distribution.at(location).read_text("direct_url.json")
        facts = json.loads(text or "{}")
        if not facts.get("dir_info", {}).get("editable"):
            return None
        return url2pathname(urlsplit(facts["url"]).path)
    except (OSError, ValueError, KeyError, AttributeError):
        return None


def _declared(source: str) -> dict[str, str] | None:
    """group:name -> value of the entry points for us in a pyproject.toml, None without one that
    lists them, or of which it cannot be told."""
    try:
        with open(os.path.join(source, "pyproject.toml"), "rb") as file:
            project = tomllib.load(file).get("project", {})
        if "entry-points" in project.get("dynamic", ()):
            return None
        return {
            f"{group}:{name}": value.replace(" ", "")
            for group, entries in project.get("entry-points", {}).items()
            if group.startswith(GROUP_PREFIX)
            for name, value in entries.items()
        }
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError, AttributeError, TypeError):
        return None


def _listed(location: str) -> dict[str, str]:
    return {
        f"{entry.group}:{entry.name}": entry.value.replace(" ", "")
        for entry in Distribution.at(location).entry_points
        if entry.group.startswith(GROUP_PREFIX)
    }


def doubled_metadata(search_path: Sequence[str] | None) -> Iterator[Finding]:
    """Distributions with plugins of which several metadata folders lie on the path.  Of these
    one counts, which may be one that has no plugins, so that no record tells of them."""
    for found in installed(search_path):
        places = list(dict.fromkeys(map(os.path.realpath, (found.location, *found.hidden))))
        if len(places) < 2:
            continue
        one_folder = len({os.path.dirname(place) for place in places}) == 1
        yield Finding(
            code="doubled",
            severity="error" if one_folder else "warning",
            message=f"{found.name} has {len(places)} metadata folders: {', '.join(places)}",
            mend=f"pip uninstall {found.name} until none is left, then install it again"
            if one_folder
            else "the first counts; take the other folder off the path, or uninstall it there",
            distribution=found.name,
        )


def unmet_requirements(
    records: Iterable[Record], search_path: Sequence[str] | None
) -> Iterator[Finding]:
    """Requirements of the distributions that have plugins which are not installed, or in
    another version."""
    for name in _owners(records):
        for requirement in _requirements(name, search_path):
            if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
                continue
            version = _version(requirement.name, search_path)
            if version is None:
                found = f"requires {requirement}, which is not installed"
            elif not requirement.specifier.contains(version, prereleases=True):
                found = f"requires {requirement}, but {requirement.name} {version} is installed"
            else:
                continue
            yield Finding(
                code="requirement",
                severity="error",
                message=f"{name} {found}",
                mend=f"pip install '{requirement.name}{requirement.specifier}'",
                distribution=name,
            )


def _owners(records: Iterable[Record]) -> list[str]:
    """Distributions of the records, each once."""
    owners = {
        normalize(r.distribution): r.distribution
        for r in records
        if r.location is not None and r.distribution
    }
    return [owners[name] for name in sorted(owners)]


def _find(name: str, search_path: Sequence[str] | None) -> Distribution | None:
    """On the path of the plugins, else on that of the process."""
    paths = [{"path": list(search_path)}, {}] if search_path is not None else [{}]
    for where in paths:
        for found in importlib_metadata.distributions(name=name, **where):
            return cast("Distribution", found)
    return None


def _version(name: str, search_path: Sequence[str] | None) -> str | None:
    found = _find(name, search_path)
    return found.version if found is not None else None


def _requirements(name: str, search_path: Sequence[str] | None) -> Iterator[Requirement]:
    found = _find(name, search_path)
    for text in (found.requires if found is not None else None) or ():
        try:
            yield Requirement(text)
        except InvalidRequirement:
            continue
