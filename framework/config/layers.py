"""Values by section and field, layer by layer, with the source of each.

A later layer wins.  A field that is a mapping is merged by key; options of plugins go by
their full names, so that a file, the environment and flags may each give some.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from framework.config.plugin_options import flat_options
from framework.config.sections import EngineConfig
from framework.errors import ConfigError
from framework.plugins.near import did_you_mean

OPTIONS = "plugin_options"

SECTIONS: dict[str, type[BaseModel]] = {
    name: typing.cast("type[BaseModel]", field.annotation)
    for name, field in EngineConfig.model_fields.items()
}
OWNER = {field: name for name, model in SECTIONS.items() for field in model.model_fields}
"""field -> its section"""


@dataclass(frozen=True, slots=True)
class Setting:
    """One value of one layer.  source: as `Resolved.provenance` shows it."""

    section: str
    field: str
    value: object
    source: str


def setting(section: str, field: str, value: object, source: str) -> Setting:
    """Raises ConfigError with near matches for an unknown section or field."""
    if section not in SECTIONS:
        raise unknown("section", section, list(SECTIONS), source)
    if field not in SECTIONS[section].model_fields:
        raise unknown(f"{section} field", field, list(OWNER), source)
    return Setting(section, field, value, source)


def flat_setting(field: str, value: object, source: str, word: str) -> Setting:
    """A field without its section.  word: what to call it when it is unknown."""
    if field not in OWNER:
        raise unknown(word, field, list(OWNER), source)
    return Setting(OWNER[field], field, value, source)


def unknown(what: str, name: str, known: list[str], source: str) -> ConfigError:
    """The error for a name that the configuration has not."""
    return ConfigError(
        f"unknown {what} {name!r}{did_you_mean(name, known)}",
        expected=f"one of {', '.join(sorted(known))}",
        found=f"{name!r} from {source}",
    )


class Merged:
    """All layers put one over the other.

    values: section -> field -> value.  sources: "section.field" -> source, and for each key of
    a mapping "section.field.key" -> source.
    """

    def __init__(self, *layers: list[Setting]) -> None:
        self.values: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
        self.sources = {f"{section}.{field}": "default" for field, section in OWNER.items()}
        for layer in layers:
            for item in layer:
                self._put(item)

    def _put(self, item: Setting) -> None:
        path = f"{item.section}.{item.field}"
        fields = self.values[item.section]
        self.sources[path] = item.source
        if not (isinstance(item.value, Mapping) and is_mapping(item.section, item.field)):
            fields[item.field] = item.value
            return
        before = fields.get(item.field)
        merged = dict(before) if isinstance(before, Mapping) else {}
        for key, value in _entries(item.field, item.value, item.source):
            merged[key] = value
            self.sources[f"{path}.{key}"] = item.source
        fields[item.field] = merged


def is_mapping(section: str, field: str) -> bool:
    """The field holds a mapping, which layers merge by key."""
    return typing.get_origin(SECTIONS[section].model_fields[field].annotation) is dict


def _entries(field: str, value: Mapping[Any, Any], source: str) -> Iterator[tuple[Any, Any]]:
    if field == OPTIONS:
        yield from flat_options(value, source).items()
    else:
        yield from value.items()
