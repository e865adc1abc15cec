"""`framework plugins list`: a line per plugin.  Imports no plugin."""

from __future__ import annotations

import typer

from framework.cli.context import registry_of
from framework.cli.printing import Json, plain, print_json, show_problems, show_table


def list_plugins(context: typer.Context, as_json: Json = False) -> None:
    """List all plugins with kind, name, distribution, version, state and reason."""
    registry = registry_of(context)
    records = registry.records()
    if as_json:
        print_json([record.as_dict() for record in records])
    else:
        from rich.table import Table

        table = Table("kind", "name", "distribution", "version", "state", "reason", box=None)
        for record in records:
            reason = record.reason or ("" if record.facts else "facts unknown")
            cells = [record.kind, record.name, record.owner, record.version or "-"]
            table.add_row(*map(plain, [*cells, record.state.value, reason]))
        show_table(table)
    show_problems(registry)
