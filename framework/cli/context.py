"""What the root options of the command line say, and the registry that follows from it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from framework.config.once import put_once
from framework.errors import ConfigError
from framework.shown import shown

if TYPE_CHECKING:
    import typer

    from framework.config.resolve import Resolved
    from framework.plugins.registry import PluginRegistry

DEFAULT_MODEL = "demo"


@dataclass(frozen=True, slots=True)
class RootOptions:
    """no_plugins: first party only.  plugins: {"kind:name": "module:attr"}.
    options: {"kind.name.key": value}, perhaps with secrets.  frozen: refuse other plugins than
    those of lock_file; None where the flag was not given."""

    no_plugins: bool = False
    plugins: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict, repr=False)
    frozen: bool = False
    lock_file: str | None = None

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> RootOptions:
        """From the values of the flags.  Raises ConfigError for one that is not understood."""
        return cls(
            no_plugins=bool(parameters.get("no_plugins")),
            plugins=parse_plugins(parameters.get("plugin") or []),
            options=parse_options(parameters.get("plugin_option") or []),
            frozen=bool(parameters.get("frozen")),
            lock_file=parameters.get("lock_file"),
        )

    def keywords(self) -> dict[str, object]:
        """The fields of the configuration that were given."""
        given = {
            "plugins": self.plugins,
            "plugin_options": self.options,
            "no_plugins": self.no_plugins,
            "frozen": self.frozen,
            "lock_file": self.lock_file,
        }
        return {name: value for name, value in given.items() if value}


def root_options(context: typer.Context) -> RootOptions:
    """What the root options of this call say."""
    root = context.find_root()
    return root.obj if isinstance(root.obj, RootOptions) else RootOptions.of(root.params)


def only_the_core() -> bool:
    """Whether no installed distribution brings anything that could run a model."""
    from framework.plugins.distributions import any_has_group

    return not any_has_group("framework.executors")


def parse_options(texts: list[str]) -> dict[str, str]:
    """Read `kind.name.key=value` options; ConfigError for another form, or one that comes twice."""
    from framework.plugins.options import parse_option

    options: dict[str, str] = {}
    for text in texts:
        kind, name, key, value = parse_option(text)
        path = f"{kind}.{name}.{key}"
        put_once(options, path, value, f"--plugin-option gives {shown(path, 80)}")
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


def parse_settings(texts: Sequence[str]) -> dict[str, object]:
    """Read `FIELD=VALUE` options; ConfigError for another form, or one that comes twice."""
    from framework.config.resolve import none_or_text, read_yaml

    settings: dict[str, object] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise ConfigError(
                f"--set {text!r} is not understood", expected="FIELD=VALUE", found=text
            )
        structured = value[:1] in ("[", "{")
        read = read_yaml(value, f"--set {name}") if structured else none_or_text(name, value)
        put_once(settings, name, read, f"--set gives {shown(name, 80)}")
    return settings


def resolved_of(
    context: typer.Context,
    flags: Mapping[str, object] | None = None,
    config: Path | None = None,
    settings: Sequence[str] | None = None,
    plugin_options: Mapping[str, object] | None = None,
) -> Resolved:
    """The configuration of environment, file and all flags; see `resolved_with`."""
    return resolved_with(root_options(context), flags, config, settings, plugin_options)


def resolved_with(
    root: RootOptions,
    flags: Mapping[str, object] | None = None,
    config: Path | None = None,
    settings: Sequence[str] | None = None,
    plugin_options: Mapping[str, object] | None = None,
) -> Resolved:
    """The configuration of environment, file and all flags.

    flags: fields and what the command's own flags say; None leaves one to the other sources.
    plugin_options: {"kind.name.key": value} of the command's own flags.
    A model that is not given anywhere is the demo.  Raises ConfigError.
    """
    from framework.config.resolve import resolve

    keywords = {name: value for name, value in (flags or {}).items() if value is not None}
    keywords.update(parse_settings(settings or []))
    keywords.update(root.keywords())
    if plugin_options:
        keywords["plugin_options"] = {**root.options, **plugin_options}
    defaults = {"model": DEFAULT_MODEL}
    return resolve(keywords, defaults=defaults, env=os.environ, file=config, word="flag")


def registry_of(context: typer.Context) -> PluginRegistry:
    """The registry that environment and root options describe."""
    from framework.config.choices import open_registry

    return open_registry(resolved_of(context).config)
