"""The two ways of writing options of plugins, made one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from framework.config.once import put_once
from framework.errors import ConfigError


def nested_options(
    options: Mapping[str, Any], source: str = ""
) -> dict[str, dict[str, dict[str, Any]]]:
    """{"kind.name.key": value} and {kind: {name: {key: value}}} as the second.

    source: where they come from, for messages; the values stay out of these.
    """
    nested: dict[str, dict[str, dict[str, Any]]] = {}

    def put(kind: str, name: str, key: str, value: object) -> None:
        keys = nested.setdefault(kind, {}).setdefault(name, {})
        where = f" ({source})" if source else ""
        put_once(keys, key, value, f"the option {kind}.{name}.{key} is there", where)

    for path, value in options.items():
        parts = str(path).split(".", 2)
        if len(parts) == 3 and all(parts):
            kind, name, key = parts
            put(kind, name, key, value)
            continue
        if len(parts) != 1 or not isinstance(value, Mapping):
            raise _bad(str(path), value, source)
        for name, keys in value.items():
            if not isinstance(keys, Mapping):
                raise _bad(f"{path}.{name}", keys, source)
            for key, each in keys.items():
                put(str(path), str(name), key, each)
    return nested


def flat_options(options: Mapping[str, Any], source: str = "") -> dict[str, Any]:
    """Either of them as {"kind.name.key": value}."""
    return {
        f"{kind}.{name}.{key}": value
        for kind, plugins in nested_options(options, source).items()
        for name, keys in plugins.items()
        for key, value in keys.items()
    }


def _bad(path: str, value: object, source: str) -> ConfigError:
    return ConfigError(
        f"plugin_options is invalid{f' ({source})' if source else ''}",
        expected="{'kind.name.key': value} or {kind: {name: {key: value}}}",
        found=f"{path!r}: a {type(value).__name__}",
    )
