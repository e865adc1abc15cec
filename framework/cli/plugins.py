"""`framework plugins`: what is installed, and what became of it.  Imports no plugin."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from framework.cli.context import registry_of

if TYPE_CHECKING:
    from rich.table import Table

    from framework.plugins.registry import PluginRegistry

app = typer.Typer(help="Show the plugins that are installed.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def show_table(table: Table) -> None:
    """Print a table; piped, it is as wide as it needs to be, so that lines can be searched."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = 1000
    console.print(table)


def show_problems(registry: PluginRegistry) -> None:
    """Print what is wrong with lists, groups and options to stderr."""
    for problem in registry.problems:
        word = "error" if problem.fatal else "warning"
        mend = f" ({problem.mend})" if problem.mend else ""
        print(f"{word}: {problem.message}{mend}", file=sys.stderr)


@app.command("list")
def list_plugins(context: typer.Context, as_json: Json = False) -> None:
    """List all plugins with kind, name, distribution, version, state and reason."""
    registry = registry_of(context)
    records = registry.records()
    if as_json:
        print(json.dumps([record.as_dict() for record in records], indent=2, default=str))
    else:
        from rich.table import Table

        table = Table("kind", "name", "distribution", "version", "state", "reason", box=None)
        for record in records:
            reason = record.reason or ("" if record.facts else "facts unknown")
            cells = [record.kind, record.name, record.owner, record.version or "-"]
            table.add_row(*map(_plain, [*cells, record.state.value, reason]))
        show_table(table)
    show_problems(registry)


@app.command("show")
def show_plugin(
    context: typer.Context,
    plugin: Annotated[str, typer.Argument(help="KIND:NAME, or KIND:NAME@DISTRIBUTION")],
    as_json: Json = False,
) -> None:
    """Show everything that is known of one plugin without importing it."""
    from framework.errors import ConfigError
    from framework.plugins.lookup import claims, unknown

    registry = registry_of(context)
    kind, colon, name = plugin.partition(":")
    if not colon:
        raise ConfigError(f"{plugin!r} is no plugin", expected="KIND:NAME", found=plugin)
    records = registry.records(registry.kind(kind).name)
    found = claims(records, name)
    if not found:
        raise unknown(name, kind, records, registry.first_party)
    if as_json:
        print(json.dumps([record.as_dict() for record in found], indent=2, default=str))
        return
    from rich.table import Table

    for record in found:
        table = Table(show_header=False, box=None)
        for key, value in record.as_dict().items():
            shown = "unknown" if value is None and key == "facts" else value
            table.add_row(key, _plain("-" if shown is None else str(shown)))
        show_table(table)


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)
