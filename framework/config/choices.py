"""Which plugins a configuration names, and the registry that it describes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from framework.config.plugin_options import nested_options
from framework.plugins.kinds import GROUP_PREFIX, KINDS, Kind, Scope

if TYPE_CHECKING:
    from framework.config.sections import EngineConfig
    from framework.plugins.registry import PluginRegistry


def choices_of(config: EngineConfig) -> dict[str, tuple[str, ...]]:
    """kind -> names of plugins that the configuration says; kinds without any are left out.

    A field that is called like a kind holds one name, one that is called like a kind's group
    several; of a mapping the values are names.  What the section of the model says ("model",
    "tokenizer") are names of models.
    """
    sections = [section for name, section in config if name != "model"]
    values = {name: value for section in sections for name, value in section}
    found = {}
    for kind in KINDS:
        one, several = (values.get(field) for field in choice_fields(kind))
        many = several.values() if isinstance(several, Mapping) else several or ()
        names = (*([one] if one else []), *many)
        if names:
            found[kind.name] = names
    return found


def choice_fields(kind: Kind) -> tuple[str, str]:
    """Names of the fields that may choose plugins of a kind, whether or not there are such."""
    return kind.name, kind.group.removeprefix(GROUP_PREFIX)


def open_registry(
    config: EngineConfig,
    env: Mapping[str, str] | None = None,
    *,
    scopes: Iterable[Scope] = tuple(Scope),
) -> PluginRegistry:
    """The plugins that a configuration may use, in a process of these scopes.  env: with the
    policy, default os.environ."""
    from framework.plugins.policy import Policy
    from framework.plugins.registry import PluginRegistry

    plugin = config.plugin
    variables = os.environ if env is None else env
    return PluginRegistry(
        policy=Policy.from_env(variables, no_plugins=plugin.no_plugins),
        ad_hoc=plugin.plugins,
        options=nested_options(plugin.plugin_options),
        slow_import=plugin.slow_import,
        scopes=scopes,
    )


def check_frozen(config: EngineConfig, registry: PluginRegistry) -> None:
    """Where the configuration is frozen, raise PluginError unless the lock holds what it uses."""
    if not config.plugin.frozen:
        return
    from framework.plugins.lock import check_lock
    from framework.plugins.resolved import resolve_plugins

    check_lock(resolve_plugins(registry, choices_of(config)), Path(config.plugin.lock_file))


def named_fields() -> Iterator[str]:
    """All fields that could choose plugins."""
    for kind in KINDS:
        yield from choice_fields(kind)
