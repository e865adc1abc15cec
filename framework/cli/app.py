"""The typer application: root options and sub-commands.

A sub-command's module imports nothing heavy at its top; what it needs it imports when run.
"""

from __future__ import annotations

from typing import Annotated

import typer

from framework.cli import explain, plugins
from framework.cli.context import RootOptions, parse_plugins


def root(
    context: typer.Context,
    no_plugins: Annotated[
        bool, typer.Option("--no-plugins", help="First-party plugins only.")
    ] = False,
    plugin: Annotated[
        list[str] | None,
        typer.Option(
            "--plugin", metavar="KIND:NAME=MODULE:ATTR", help="Add a plugin without packaging."
        ),
    ] = None,
) -> None:
    """An LLM inference engine with a small core; everything else is a plugin."""
    context.obj = RootOptions(no_plugins=no_plugins, plugins=parse_plugins(plugin or []))


def build_app() -> typer.Typer:
    """The whole command line."""
    app = typer.Typer(name="framework", no_args_is_help=True, pretty_exceptions_enable=False)
    app.callback()(root)
    app.add_typer(plugins.app, name="plugins")
    app.command("explain")(explain.explain)
    return app
