"""`framework plugins conform`: run the conformance kit on a plugin."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from framework.cli.context import root_options
from framework.cli.printing import plugins_speak_aside

if TYPE_CHECKING:
    from framework.testing.conformance.report import Report


def conform(
    context: typer.Context,
    plugin: Annotated[
        str, typer.Argument(help="NAME, KIND:NAME or KIND:NAME@DISTRIBUTION", metavar="PLUGIN")
    ],
    json_path: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="Write the report as JSON; - prints it."),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the report as JUnit XML.")
    ] = None,
    clause: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Only this clause; may be repeated.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the random cases.")] = None,
    case: Annotated[
        int | None, typer.Option(min=0, help="Only this random case of each clause.")
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(metavar="MODULE:CLASS", help="A suite in place of that of the kind."),
    ] = None,
    budget: Annotated[
        float,
        typer.Option(min=0.1, max=1e6, metavar="SECONDS", help="After this a clause hangs."),
    ] = 120.0,
    slowness: Annotated[
        float,
        typer.Option(
            min=1.0, max=1e3, metavar="FACTOR", help="Of this machine; multiplies all budgets."
        ),
    ] = 1.0,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the clauses that hold, too.")
    ] = False,
) -> None:
    """Check that a plugin keeps the promises of its contract.

    The exit code is 0 if no MUST is broken, else 1.
    """
    from framework.config.plugin_options import nested_options
    from framework.testing.conformance.apart import check_apart
    from framework.testing.conformance.target import full_name

    root = root_options(context)
    name = full_name(plugin, ad_hoc=root.plugins)
    kind, _, rest = name.partition(":")
    options = nested_options(root.options).get(kind, {}).get(rest.partition("@")[0])
    if suite is not None:
        _check_suite(suite)
    with plugins_speak_aside():
        report = check_apart(
            name,
            suite=suite,
            options=options,
            ad_hoc=root.plugins,
            seed=seed,
            only=clause or (),
            only_case=case,
            budget=budget,
            slowness=slowness if slowness != 1 else None,
        )
    if json_path != "-":
        print(report.text(verbose=verbose))
    _write(report, json_path, junit)
    raise typer.Exit(0 if report.conformant else 1)


def _check_suite(value: str) -> None:
    from framework.errors import ConfigError
    from framework.testing.conformance.catalogue import load_suite

    try:
        load_suite(value)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"suite {value!r} cannot be used: {error}",
            expected="MODULE:CLASS of a class derived from framework.testing.conformance.Suite",
            found=value,
        ) from error


def _write(report: Report, json_path: str | None, junit: Path | None) -> None:
    import json

    from framework.errors import ConfigError

    text = json.dumps(report.as_dict(), indent=2, default=str)
    try:
        if json_path == "-":
            print(text)
        elif json_path is not None:
            Path(json_path).write_text(text + "\n")
        if junit is not None:
            junit.write_text(report.junit())
    except OSError as error:
        raise ConfigError(
            f"the report cannot be written: {error}",
            mend="name a file in a folder that is there and that you can write to",
        ) from error
