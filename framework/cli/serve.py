"""`framework serve`: an HTTP server, or whatever front end is installed."""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Annotated, Literal

import typer

from framework.cli.context import registry_of
from framework.cli.fields import parse_fields
from framework.cli.options import Config, Dtype, Level, MaxModelLen, Model, Settings


def serve(
    context: typer.Context,
    model: Model = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 takes a free one.")] = None,
    api_key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[TENANT:]KEY",
            envvar="FRAMEWORK_API_KEY",
            help="A key that clients may use; may be repeated.",
        ),
    ] = None,
    tool_parser: Annotated[
        str | None, typer.Option(help="Plugin that finds calls of tools in answers.")
    ] = None,
    reasoning_parser: Annotated[
        str | None, typer.Option(help="Plugin that tells reasoning from answers.")
    ] = None,
    front_end: Annotated[str, typer.Option(help="Name of the front-end plugin.")] = "http",
    on_core_death: Annotated[
        Literal["exit", "restart"] | None,
        typer.Option(help="What to do when the engine core dies."),
    ] = None,
    in_process: Annotated[
        bool, typer.Option("--in-process", help="The engine core in a thread, for debugging.")
    ] = False,
    dtype: Dtype = None,
    max_model_len: MaxModelLen = None,
    level: Level = None,
    config: Config = None,
    settings: Settings = None,
) -> None:
    """Serve a model until SIGTERM; a second one ends at once. Every field of the configuration
    (see `framework config`) and every option of the front end is a flag as well, such as
    --max-num-seqs 8 or --ssl-certfile FILE."""
    import asyncio

    from framework.cli.context import resolved_of
    from framework.engine.serve import serve as run

    fields, others = parse_fields(
        context.args,
        [option for parameter in context.command.params for option in parameter.opts],
        functools.partial(_front_end_options, context, front_end),
    )
    given = {**others, "host": host, "port": port, "api_keys": api_key or None}
    own: dict[str, object] = {
        "model": model,
        "dtype": dtype,
        "max_model_len": max_model_len,
        "optimization_level": level,
        "tool_parser": tool_parser,
        "reasoning_parser": reasoning_parser,
        "on_core_death": on_core_death,
    }
    flags = {**fields, **{name: value for name, value in own.items() if value is not None}}
    resolved = resolved_of(
        context,
        flags,
        config,
        settings,
        plugin_options={
            f"front_end.{front_end}.{name}": value
            for name, value in given.items()
            if value is not None
        },
    )
    raise typer.Exit(asyncio.run(run(resolved, front_end, in_process=in_process)))


def _front_end_options(context: typer.Context, name: str) -> Collection[str]:
    """What the front end can be told."""
    model = registry_of(context).load("front_end", name, named=True).Options
    return () if model is None else list(model.model_fields)
