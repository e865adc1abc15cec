"""Where each value of the configuration comes from.

Later wins: defaults, YAML file, environment (`FRAMEWORK_<SECTION>__<FIELD>`), keywords or
flags.
"""

from __future__ import annotations

import reprlib
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from framework.config.sections import EngineConfig
from framework.errors import ConfigError
from framework.plugins.near import did_you_mean

_PREFIX = "FRAMEWORK_"
# Beside its own errors yaml lets through those of the constructors of dates and numbers, and
# of nesting that is too deep.
_YAML_ERRORS = (yaml.YAMLError, ValueError, LookupError, TypeError, RecursionError)
_NOTHING = ("null", "none")
_EXPECTED = {
    "tuple_type": "a list, such as [NAME, NAME]",
    "dict_type": "a mapping, such as {KEY: VALUE}",
    "string_too_short": "a text that is not empty",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """provenance: "section.field" -> "default", "file PATH", "environment NAME", "keyword"."""

    config: EngineConfig
    provenance: Mapping[str, str]


class _Layers:
    """Values by section and field, and their sources; a later `set` wins."""

    def __init__(self) -> None:
        self.sections: dict[str, type[BaseModel]] = {
            name: typing.cast(type[BaseModel], field.annotation)
            for name, field in EngineConfig.model_fields.items()
        }
        self.owner = {f: s for s, model in self.sections.items() for f in model.model_fields}
        self.values: dict[str, dict[str, Any]] = {name: {} for name in self.sections}
        self.sources = {f"{section}.{name}": "default" for name, section in self.owner.items()}

    def set(self, section: str, field: str, value: object, source: str) -> None:
        if section not in self.sections:
            raise _unknown("section", section, list(self.sections), source)
        if field not in self.sections[section].model_fields:
            raise _unknown(f"{section} field", field, list(self.owner), source)
        self.values[section][field] = value
        self.sources[f"{section}.{field}"] = source

    def takes_text(self, section: str, field: str) -> bool:
        annotation = self.sections[section].model_fields[field].annotation
        return typing.get_origin(annotation) not in (dict, list, tuple)

    def takes_none(self, section: str, field: str) -> bool:
        annotation = self.sections[section].model_fields[field].annotation
        return type(None) in typing.get_args(annotation)


def resolve(
    keywords: Mapping[str, object],
    *,
    defaults: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
    file: Path | None = None,
    word: str = "keyword",
) -> Resolved:
    """Build the configuration.

    keywords: field -> value, without sections; `word` is what to call them ("flag").
    defaults: the same, for what the sections leave open or to replace their defaults.
    Raises ConfigError that names the field, its source, what was expected and near matches.
    """
    layers = _Layers()
    for name, value in (defaults or {}).items():
        layers.set(layers.owner[name], name, value, "default")
    if file is not None:
        _read_file(layers, file)
    _read_env(layers, env or {})
    for name, value in keywords.items():
        section = layers.owner.get(name)
        if section is None:
            raise _unknown(word, name, list(layers.owner), word)
        layers.set(section, name, value, word)
    try:
        config = EngineConfig.model_validate(layers.values)
    except ValidationError as error:
        raise _invalid(error, layers) from None
    return Resolved(config=config, provenance=layers.sources)


def read_yaml(text: str, source: str) -> Any:
    """The value that a text from `source` holds.  Raises ConfigError."""
    try:
        return yaml.safe_load(text)
    except _YAML_ERRORS as error:
        raise ConfigError(f"{source} is not JSON or YAML: {error or type(error)}") from error


def none_or_text(name: str, text: str) -> str | None:
    """A value that was written as text: `null` and `none` are None where the field `name` may
    be None."""
    layers = _Layers()
    section = layers.owner.get(name)
    return _none_or_text(layers, section, name, text) if section is not None else text


def _none_or_text(layers: _Layers, section: str, field: str, text: str) -> str | None:
    nothing = text.strip().lower() in _NOTHING and layers.takes_none(section, field)
    return None if nothing else text


def _read_file(layers: _Layers, file: Path) -> None:
    source = f"file {file}"
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{source} cannot be read: {error}") from error
    content = read_yaml(text, source)
    if content is None:
        return
    if not isinstance(content, dict):
        raise ConfigError(
            f"{source} is not a configuration",
            expected=f"a mapping with sections {', '.join(layers.sections)}",
            found=type(content).__name__,
        )
    for section, fields in content.items():
        if not isinstance(fields, dict):
            raise ConfigError(
                f"{source}: section {section!r} is not a mapping",
                expected="field: value",
                found=_shown(fields),
            )
        for field, value in fields.items():
            layers.set(str(section), str(field), value, source)


def _read_env(layers: _Layers, env: Mapping[str, str]) -> None:
    for name, text in env.items():
        section, split, field = name.removeprefix(_PREFIX).lower().partition("__")
        if not name.startswith(_PREFIX) or not split:
            continue
        source = f"environment {name}"
        layers.set(section, field, text, source)
        if not layers.takes_text(section, field):
            layers.set(section, field, read_yaml(text, source), source)
        else:
            layers.set(section, field, _none_or_text(layers, section, field, text), source)


def _unknown(what: str, name: str, known: list[str], source: str) -> ConfigError:
    return ConfigError(
        f"unknown {what} {name!r}{did_you_mean(name, known)}",
        expected=f"one of {', '.join(sorted(known))}",
        found=f"{name!r} from {source}",
    )


def _invalid(error: ValidationError, layers: _Layers) -> ConfigError:
    """The first fault in full; secrets are not repeated."""
    fault = error.errors(include_url=False)[0]
    path = ".".join(str(part) for part in fault["loc"][:2])
    field = path.partition(".")[2] or path
    if fault["type"] == "missing":
        return ConfigError(f"{field} is missing", expected=f"a value for {path}", found="none")
    found = "a value that is not shown" if field == "token" else _shown(fault["input"])
    return ConfigError(
        f"{field} is invalid",
        expected=_EXPECTED.get(fault["type"]) or fault["msg"].removeprefix("Input should be "),
        found=f"{found} ({layers.sources.get(path, 'unknown')})",
    )


def _shown(value: object) -> str:
    """Short; the text of a nested value is never made whole, it may be of any length."""
    if not isinstance(value, list | dict | tuple):
        return f"{value!r:.200}"
    short = reprlib.Repr()
    short.maxlevel = 2
    return short.repr(value)[:200]
