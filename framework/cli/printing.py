"""What several commands print alike: JSON, tables, and what is wrong with the plugins."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from framework.shown import in_a_line, printable

if TYPE_CHECKING:
    from rich.table import Table

    from framework.plugins.registry import PluginRegistry

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def print_json(value: object) -> None:
    """Print `value` as JSON; what JSON does not have is shown as text."""
    print(json.dumps(_finite(value), indent=2, default=str, allow_nan=False))


def _finite(value: object) -> object:
    """The value with nan and inf as text, which Python would write as no other language reads."""
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
    return value


@contextmanager
def plugins_speak_aside() -> Iterator[None]:
    """Within, what plugins and their processes print goes to stderr: stdout is for the answer."""
    kept = None
    sys.stdout.flush()
    with suppress(OSError):  # closed streams
        kept = os.dup(1)
        os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if kept is not None:
            os.dup2(kept, 1)
            os.close(kept)


def show_table(table: Table) -> None:
    """Print a table; piped, it is as wide as it needs to be, so that lines can be searched."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = 1000
    console.print(table)


def show_columns(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print hundreds of rows at once, each column as wide as its widest cell; rich takes 3 ms
    for a row."""
    lines = [header, *([in_a_line(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip())


def show_problems(registry: PluginRegistry) -> None:
    """Print what is wrong with lists, groups and options to stderr."""
    for problem in registry.problems:
        word = "error" if problem.fatal else "warning"
        mend = f" ({problem.mend})" if problem.mend else ""
        print(printable(f"{word}: {problem.message}{mend}"), file=sys.stderr)


def plain(text: str) -> str:
    """The text for a table cell, without what rich would take for markup and a terminal for
    orders."""
    from rich.markup import escape

    return escape(printable(text))
