"""The typer application: root options and sub-commands.

A sub-command's module imports nothing heavy at its top; what it needs it imports when run.
"""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from framework.cli import bench, config, explain, generate, plugins, serve
from framework.cli.commands import CommandGroup
from framework.cli.context import RootOptions, only_the_core
from framework.cli.fields import ANY_FLAG


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
    plugin_option: Annotated[
        list[str] | None,
        typer.Option(
            "--plugin-option", metavar="KIND.NAME.KEY=VALUE", help="Set an option of a plugin."
        ),
    ] = None,
    frozen: Annotated[
        bool,
        typer.Option("--frozen", help="Refuse to start with other plugins than the lock file has."),
    ] = False,
    lock_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="For --frozen.", show_default="framework-plugins.lock"),
    ] = None,
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose", "-v", count=True, help="Say what is chosen and done; twice: in detail."
        ),
    ] = 0,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """An LLM inference engine with a small core; everything else is a plugin."""
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    logging.basicConfig(level=level, format="%(message)s", force=True)
    context.obj = RootOptions.of(context.params)
    if context.invoked_subcommand not in ("generate", "chat"):
        _tell_what_to_install()
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def build_app() -> typer.Typer:
    """The whole command line."""
    app = typer.Typer(
        name="framework",
        cls=CommandGroup,
        invoke_without_command=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(root)
    app.command("generate")(generate.generate)
    app.command("serve", context_settings=ANY_FLAG)(serve.serve)
    app.add_typer(plugins.build_app(), name="plugins")
    app.command("explain")(explain.explain)
    app.command("config")(config.show_config)
    app.add_typer(bench.app, name="bench")
    return app


def _version(wanted: bool) -> None:
    if wanted:
        from framework import __version__

        typer.echo(f"framework {__version__}")
        _tell_what_to_install()
        raise typer.Exit


def _tell_what_to_install() -> None:
    if only_the_core():
        from framework.engine.plugged import INSTALL

        typer.echo(f"only the core is installed; to run a model: {INSTALL}", err=True)
