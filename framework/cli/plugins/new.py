"""`framework plugins new`: write a distribution with a smallest plugin that works."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from framework.cli.context import registry_of
from framework.cli.printing import Json, print_json


def new_plugin(
    context: typer.Context,
    kind: Annotated[
        str, typer.Argument(help="Kind of plugin, such as stat_logger; an unknown one lists all.")
    ],
    name: Annotated[str, typer.Argument(help="Its name, such as shortest_first.")],
    output: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the folder of the distribution is made.")
    ] = Path(),
    as_json: Json = False,
) -> None:
    """Write a distribution for a new plugin, with tests that pass at once."""
    from framework.errors import ConfigError
    from framework.plugins.lookup import claims
    from framework.scaffold import render, write

    registry = registry_of(context)
    row = registry.kind(kind)
    names, files = render(row, name)
    for record in claims(registry.records(row.name), names.name):
        raise ConfigError(
            f"{record.key} has this name already; two claims of one name are an error in use",
            found=name,
            mend="choose another name",
        )
    folder = output / names.distribution
    written = write(folder, files)
    steps = [
        f'pip install -e "{folder}[test]"',
        f"pytest {folder}",
        f"framework plugins conform {row.name}:{names.name}",
    ]
    if as_json:
        print_json(
            {
                "kind": row.name,
                "name": names.name,
                "class": names.cls,
                "package": names.package,
                "distribution": names.distribution,
                "folder": folder,
                "files": [path.relative_to(folder) for path in written],
                "next": steps,
            }
        )
        return
    for path in written:
        print(path)
    print("\nnext:", *steps, sep="\n    ")
