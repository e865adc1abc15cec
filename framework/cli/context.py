"""What the root options of the command line say, and the registry that follows from it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from framework.errors import ConfigError

if TYPE_CHECKING:
    import typer

    from framework.plugins.registry import PluginRegistry


@dataclass(frozen=True, slots=True)
class RootOptions:
    """no_plugins: first party only.  plugins: {"kind:name": "module:attr"}.
    options: {"kind.name.key": value}."""

    no_plugins: bool = False
    plugins: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)


def root_options(context: typer.Context) -> RootOptions:
    """What the root options of this call say."""
    options = context.find_root().obj
    return options if isinstance(options, RootOptions) else RootOptions()


def only_the_core() -> bool:
    """Whether no installed distribution brings anything that could run a model."""
    from importlib.metadata import entry_points

    return not entry_points(group="framework.executors")


def parse_options(texts: list[str]) -> dict[str, str]:
    """Read `kind.name.key=value` options; ConfigError for another form."""
    from framework.plugins.options import parse_option

    options = {}
    for text in texts:
        kind, name, key, value = parse_option(text)
        options[f"{kind}.{name}.{key}"] = value
    return options


def parse_plugins(texts: list[str]) -> dict[str, str]:
    """Read `kind:name=module:attr` options; ConfigError for another form."""
    plugins = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or key in plugins:
            raise ConfigError(
                f"--plugin {text!r} is not understood" if not equals else f"--plugin {key} twice",
                expected="kind:name=module:attr, once per name",
                found=text,
            )
        plugins[key] = value
    return plugins


def registry_of(context: typer.Context) -> PluginRegistry:
    """The registry that environment and root options describe."""
    from framework.config.plugin_options import nested_options
    from framework.plugins.policy import Policy
    from framework.plugins.registry import PluginRegistry

    root = root_options(context)
    policy = Policy.from_env(os.environ, no_plugins=root.no_plugins)
    return PluginRegistry(policy=policy, ad_hoc=root.plugins, options=nested_options(root.options))
