"""`framework config`: every value of the configuration and where it comes from."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from framework.cli import options
from framework.cli.context import resolved_of
from framework.cli.printing import Json, plain, plugins_speak_aside, print_json, show_table

if TYPE_CHECKING:
    from framework.config.resolve import Resolved
    from framework.plugins.registry import PluginRegistry

HIDDEN = "**********"


@dataclass(frozen=True, slots=True)
class Line:
    """One value.  field: "section.field", and the key of a mapping behind another dot."""

    field: str
    value: object
    source: str


def show_config(
    context: typer.Context,
    as_json: Json = False,
    config: options.Config = None,
    settings: options.Settings = None,
) -> None:
    """Show every value of the configuration and where it comes from: default, plugin, file,
    environment or flag.  Secrets are not shown.  A plugin that has options is loaded, to see
    whether they are right."""
    from framework.config.choices import open_registry
    from framework.config.proposals import propose
    from framework.errors import PluginError

    resolved = resolved_of(context, None, config, settings)
    registry = open_registry(resolved.config)
    resolved, notes = propose(resolved, registry)
    faults: list[PluginError] = []
    with plugins_speak_aside():
        lines = list(_lines(resolved, registry, faults))
    if as_json:
        rows = [{"field": x.field, "value": x.value, "source": x.source} for x in lines]
        print_json({"values": rows, "notes": notes, "errors": [each.as_dict() for each in faults]})
    else:
        from rich.table import Table

        table = Table("field", "value", "source", box=None)
        for line in lines:
            table.add_row(line.field, plain(str(line.value)), plain(line.source))
        show_table(table)
    for text in notes if not as_json else ():
        print(text, file=sys.stderr)
    for error in faults:
        print(f"error: {error}", file=sys.stderr)
    if faults:
        raise typer.Exit(1)


def _lines(resolved: Resolved, registry: PluginRegistry, faults: list[Any]) -> Iterator[Line]:
    from framework.config.layers import OPTIONS, is_mapping
    from framework.config.resolve import holds_secrets

    for section, fields in resolved.config:
        for name, value in fields:
            path = f"{section}.{name}"
            if name == OPTIONS:
                yield from _options(resolved, registry, path, value, faults)
            elif is_mapping(section, name) and value:
                for key, entry in value.items():
                    yield Line(f"{path}.{key}", entry, resolved.provenance[f"{path}.{key}"])
            else:
                shown = HIDDEN if value is not None and holds_secrets(section, name) else value
                yield Line(path, shown, resolved.provenance[path])


def _options(
    resolved: Resolved,
    registry: PluginRegistry,
    path: str,
    given: dict[str, Any],
    faults: list[Any],
) -> Iterator[Line]:
    """Options of plugins; what the plugin does not declare as open stays hidden."""
    from framework.config.plugin_options import nested_options
    from framework.errors import FrameworkError
    from framework.plugins.options import is_secret, validate

    for kind, plugins in nested_options(given).items():
        for name, values in plugins.items():
            model = None
            try:
                record = registry.find(kind, name, named=True)
                cls = registry.load_record(record)
                validate(record, cls, values)
                model = cls.Options
            except FrameworkError as error:
                faults.append(error)
            for key, value in values.items():
                full = f"{path}.{kind}.{name}.{key}"
                shown = HIDDEN if model is None or is_secret(model, key) else value
                yield Line(full, shown, resolved.provenance[full])
