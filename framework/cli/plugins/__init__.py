"""`framework plugins`: what is installed, and what became of it.  One file per command."""

from __future__ import annotations

import typer

from framework.cli.explain import explain
from framework.cli.plugins.conform import conform
from framework.cli.plugins.doctor import doctor
from framework.cli.plugins.listing import list_plugins
from framework.cli.plugins.lock import lock
from framework.cli.plugins.new import new_plugin
from framework.cli.plugins.show import show_plugin


def build_app() -> typer.Typer:
    """The commands below `framework plugins`."""
    app = typer.Typer(help="Show, check and begin plugins.", no_args_is_help=True)
    app.command("list")(list_plugins)
    app.command("show")(show_plugin)
    app.command("doctor")(doctor)
    app.command("new")(new_plugin)
    app.command("conform")(conform)
    app.command("lock")(lock)
    app.command("explain")(explain)
    return app
