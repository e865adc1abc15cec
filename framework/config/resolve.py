"""Where each value of the configuration comes from.

Later wins: defaults, those of the level (`levels.py`), what plugins propose, YAML file, environment
(`FRAMEWORK_<SECTION>__<FIELD>`, `FRAMEWORK_PLUGIN_OPTION__<KIND>__<NAME>__<KEY>`), keywords or
flags.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import SecretStr, ValidationError

from framework.config.layers import (
    OPTIONS,
    OWNER,
    SECTIONS,
    Merged,
    Setting,
    flat_setting,
    setting,
)
from framework.config.levels import level_settings
from framework.config.sections import ENV_ALIASES, EngineConfig
from framework.config.speculation import expanded
from framework.config.strict_yaml import read_yaml as read_yaml
from framework.errors import ConfigError
from framework.shown import shown

_PREFIX = "FRAMEWORK_"
_OPTION = "plugin_option"
_NOTHING = ("null", "none")
_EXPECTED = {
    "tuple_type": "a list, such as [NAME, NAME]",
    "dict_type": "a mapping, such as {KEY: VALUE}",
    "string_too_short": "a text that is not empty",
    "string_type": "a text",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """provenance: "section.field" -> "default", "level N", "plugin KIND:NAME@DISTRIBUTION",
    "file PATH", "environment NAME", or "keyword" or "flag"; keys of mappings have entries of their
    own, "section.field.key"."""

    config: EngineConfig
    provenance: Mapping[str, str]
    defaults: list[Setting] = field(repr=False)
    given: list[Setting] = field(repr=False)

    def with_proposals(self, proposals: Iterable[Setting]) -> Resolved:
        """The same with values that plugins propose: they count where nobody gave one."""
        return _resolved(self.defaults, list(proposals), self.given)


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
    preset = [flat_setting(n, v, "default", "field") for n, v in (defaults or {}).items()]
    given = [
        *(_file_settings(file) if file is not None else ()),
        *_env_settings(env or {}),
        *(flat_setting(name, value, word, word) for name, value in keywords.items()),
    ]
    return _resolved(preset, [], given)


def _resolved(preset: list[Setting], proposed: list[Setting], given: list[Setting]) -> Resolved:
    given = [each for item in given for each in expanded(item)]
    merged = Merged(preset, level_settings(preset, proposed, given), proposed, given)
    try:
        config = EngineConfig.model_validate(merged.values)
    except ValidationError as error:
        raise _invalid(error, merged.sources) from None
    return Resolved(config=config, provenance=merged.sources, defaults=preset, given=given)


def none_or_text(name: str, text: str) -> str | None:
    """A value that was written as text: `null` is None, and so is `none` where the field `name`
    may be None."""
    return _none_or_text(OWNER[name], name, text) if name in OWNER else text


def _none_or_text(section: str, field: str, text: str) -> str | None:
    if text.strip().lower() == "null":  # as YAML has it; whether the field takes it is told later
        return None
    takes_none = type(None) in typing.get_args(_annotation(section, field))
    return None if takes_none and text.strip().lower() in _NOTHING else text


def _annotation(section: str, field: str) -> Any:
    return SECTIONS[section].model_fields[field].annotation


def _file_settings(file: Path) -> Iterable[Setting]:
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
            expected=f"a mapping with sections {', '.join(SECTIONS)}",
            found=type(content).__name__,
        )
    for section, fields in content.items():
        if not isinstance(fields, dict):
            raise ConfigError(
                f"{source}: section {section!r} is not a mapping",
                expected="field: value",
                found=shown(fields, 200),
            )
        for name, value in fields.items():
            yield setting(str(section), str(name), value, source)


def _env_settings(env: Mapping[str, str]) -> Iterable[Setting]:
    """Longer names later: one option of a plugin counts over a mapping of them."""
    for name in sorted(env, key=lambda name: (name.count("__"), name)):
        text, source = env[name], f"environment {name}"
        section, split, rest = name.removeprefix(_PREFIX).lower().partition("__")
        if name in ENV_ALIASES:
            yield flat_setting(ENV_ALIASES[name], text, source, "field")
        elif not name.startswith(_PREFIX) or not split:
            continue
        elif section == _OPTION:
            yield _option(rest, text, source)
        else:
            found = setting(section, rest, text, source)
            yield setting(section, rest, _env_value(found, text, source), source)


def _env_value(found: Setting, text: str, source: str) -> object:
    if typing.get_origin(_annotation(found.section, found.field)) in (dict, list, tuple):
        return read_yaml(text, source)
    return _none_or_text(found.section, found.field, text)


def _option(path: str, text: str, source: str) -> Setting:
    """FRAMEWORK_PLUGIN_OPTION__KIND__NAME__KEY; the plugin's model converts the text."""
    parts = path.split("__", 2)
    if len(parts) != 3 or not all(parts):
        raise ConfigError(
            f"{source} is not understood",
            expected=f"{_PREFIX}PLUGIN_OPTION__KIND__NAME__KEY",
            found=f"{len(parts)} of these three names",
        )
    return setting("plugin", OPTIONS, {".".join(parts): text}, source)


def _invalid(error: ValidationError, sources: Mapping[str, str]) -> ConfigError:
    """The first fault in full; secrets are not repeated."""
    fault = error.errors(include_url=False)[0]
    path = ".".join(str(part) for part in fault["loc"][:2])
    section, _, name = path.partition(".")
    if fault["type"] == "missing":
        return ConfigError(
            f"{name or path} is missing", expected=f"a value for {path}", found="none"
        )
    if not name and fault["type"] == "value_error":
        return ConfigError(
            str(fault["ctx"]["error"]),
            expected=f"settings of the section {section!r} that go together",
            found=_given(section, sources),
        )
    hidden = name in OWNER and holds_secrets(section, name)
    found = "a value that is not shown" if hidden else shown(fault["input"], 200)
    return ConfigError(
        f"{name or path} is invalid",
        expected=(_EXPECTED.get(fault["type"]) or fault["msg"].removeprefix("Input should be "))
        + _for_example(name),
        found=f"{found} ({sources.get(path, 'unknown')})",
    )


def _for_example(field: str) -> str:
    examples = SECTIONS[OWNER[field]].model_fields[field].examples if field in OWNER else None
    return f", such as {', '.join(map(repr, examples))}" if examples else ""


def _given(section: str, sources: Mapping[str, str]) -> str:
    """Which of a section's fields were set, and where."""
    own = [(path.partition(".")[2], by) for path, by in sources.items()]
    names = [f"{name} ({by})" for name, by in own if OWNER.get(name) == section and by != "default"]
    return ", ".join(names) or "defaults"


def holds_secrets(section: str, field: str) -> bool:
    """The field's value must not be shown: a secret, or one that is kept out of the repr."""
    info = SECTIONS[section].model_fields[field]
    return not info.repr or SecretStr in (info.annotation, *typing.get_args(info.annotation))
