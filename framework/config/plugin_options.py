"""The two ways of writing options of plugins, made one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from framework.errors import ConfigError


def nested_options(options: Mapping[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """{"kind.name.key": value} and {kind: {name: {key: value}}} as the second."""
    nested: dict[str, dict[str, dict[str, Any]]] = {}
    for path, value in options.items():
        parts = path.split(".", 2)
        if len(parts) == 3 and all(parts):
            kind, name, key = parts
            nested.setdefault(kind, {}).setdefault(name, {})[key] = value
            continue
        if len(parts) != 1 or not isinstance(value, Mapping):
            raise _bad(path, value)
        for name, keys in value.items():
            if not isinstance(keys, Mapping):
                raise _bad(f"{path}.{name}", keys)
            nested.setdefault(path, {}).setdefault(str(name), {}).update(keys)
    return nested


def _bad(path: str, value: object) -> ConfigError:
    return ConfigError(
        "plugin_options is invalid",
        expected="{'kind.name.key': value} or {kind: {name: {key: value}}}",
        found=f"{path!r}: a {type(value).__name__}",
    )
