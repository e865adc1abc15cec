"""`framework plugins show`: all that is known of one plugin.  Imports no plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from framework.cli.context import registry_of
from framework.cli.printing import Json, plain, print_json, show_table

if TYPE_CHECKING:
    from framework.plugins.records import Record
    from framework.plugins.registry import PluginRegistry

Plugin = Annotated[str, typer.Argument(help="NAME, KIND:NAME or KIND:NAME@DISTRIBUTION")]


def show_plugin(context: typer.Context, plugin: Plugin, as_json: Json = False) -> None:
    """Show everything that is known of one plugin without importing it."""
    found = meant(registry_of(context), plugin)
    if as_json:
        print_json([record.as_dict() for record in found])
        return
    from rich.table import Table

    for record in found:
        table = Table(show_header=False, box=None)
        for key, value in record.as_dict().items():
            shown = "unknown" if value is None and key == "facts" else value
            table.add_row(key, plain("-" if shown is None else str(shown)))
        show_table(table)


def meant(registry: PluginRegistry, plugin: str) -> list[Record]:
    """The records that [KIND:]NAME[@DISTRIBUTION] means; several where distributions or kinds
    share a name.  Raises PluginError for an unknown kind or name."""
    from framework.plugins.lookup import claims, unknown

    first, colon, rest = plugin.partition(":")
    kind, name = (registry.kind(first).name, rest) if colon else (None, plugin)
    records = registry.records(kind)
    found = claims(records, name)
    if not found:
        raise unknown(name, kind, records, registry.first_party)
    return found
