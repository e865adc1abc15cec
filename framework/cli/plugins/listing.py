"""`framework plugins list`: a line per plugin.  Imports no plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from framework.cli.context import registry_of
from framework.cli.printing import Json, print_json, show_columns, show_problems

if TYPE_CHECKING:
    from framework.plugins.records import Record


def list_plugins(context: typer.Context, as_json: Json = False) -> None:
    """List all plugins with kind, name, distribution, version, state and reason."""
    registry = registry_of(context)
    records = registry.records()
    if as_json:
        print_json([record.as_dict() for record in records])
    else:
        header = ("kind", "name", "distribution", "version", "state", "reason")
        show_columns(header, map(_cells, records))
    show_problems(registry)


def _cells(record: Record) -> tuple[str, ...]:
    reason = record.reason or ("" if record.facts else "facts unknown")
    version = record.version or "-"
    return (record.kind, record.name, record.owner, version, record.state.value, reason)
