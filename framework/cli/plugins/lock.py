"""`framework plugins lock`: write down which plugins may be used, or compare."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from framework.cli import options
from framework.cli.context import resolved_of
from framework.cli.printing import Json, print_json

Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="The lock file.", show_default="framework-plugins.lock"),
]
Check = Annotated[bool, typer.Option("--check", help="Write nothing; compare with the file.")]


def lock(
    context: typer.Context,
    output: Output = None,
    check: Check = False,
    config: options.Config = None,
    settings: options.Settings = None,
    as_json: Json = False,
) -> None:
    """Write down which plugins the configuration can use, or compare with that.

    The file holds kind, name, distribution, version, contract and a hash of the installed files.
    `framework --frozen` refuses to start with others.
    """
    from framework.config.choices import choices_of, open_registry
    from framework.plugins.lock import check_lock, read_lock, write_lock
    from framework.plugins.resolved import resolve_plugins

    configuration = resolved_of(context, None, config, settings).config
    path = output or Path(configuration.plugin.lock_file)
    resolved = resolve_plugins(open_registry(configuration), choices_of(configuration))
    if check and not as_json:
        check_lock(resolved, path)
    elif not check:
        write_lock(resolved, path)
    differences = resolved.compare(read_lock(path)) if check else ()
    if as_json:
        print_json(
            {
                "file": str(path),
                "fingerprint": resolved.fingerprint,
                "plugins": [row.key for row in resolved.rows],
                "differences": [dataclasses.asdict(each) for each in differences],
            }
        )
    else:
        done = "agrees" if check else "written"
        print(f"{path} {done}: {len(resolved.rows)} plugins, {resolved.fingerprint[:12]}")
    if differences:
        raise typer.Exit(1)
