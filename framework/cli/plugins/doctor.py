"""`framework plugins doctor`: what is wrong, and how to mend it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from framework.cli import options
from framework.cli.context import resolved_of
from framework.cli.printing import Json, print_json
from framework.shown import printable

if TYPE_CHECKING:
    from framework.config.resolve import Resolved
    from framework.plugins.doctor import Finding
    from framework.plugins.registry import PluginRegistry

Import = Annotated[
    bool, typer.Option("--import/--no-import", help="Import each plugin, in another process.")
]
Slow = Annotated[
    float, typer.Option(min=0, metavar="SECONDS", help="From here on an import is slow.")
]
Budget = Annotated[
    float, typer.Option("--budget", min=0, metavar="SECONDS", help="After this it hangs.")
]


def doctor(
    context: typer.Context,
    imports: Import = True,
    slow: Slow = 1.0,
    budget: Budget = 10.0,
    config: options.Config = None,
    settings: options.Settings = None,
    as_json: Json = False,
) -> None:
    """Tell what is wrong with the plugins that may be used, and how to mend it.

    Stale or doubled metadata, unmet requirements, contracts and scopes that do not fit, names in
    lists and in the configuration that nothing has, imports that fail, hang, end the process or
    are slow, and manifests that say something else than the class.  Exits with 1 if there is an
    error.
    """
    from framework.config.choices import choices_of, open_registry
    from framework.plugins.doctor import examine

    resolved = resolved_of(context, None, config, settings)
    configuration = resolved.config
    registry = open_registry(configuration)
    findings = examine(
        registry, choices_of(configuration), try_imports=imports, slow=slow, budget=budget
    )
    findings += _of_configuration(resolved, registry)
    errors = sum(finding.severity == "error" for finding in findings)
    if as_json:
        print_json({"errors": errors, "findings": [finding.as_dict() for finding in findings]})
    else:
        for finding in findings:
            text = f"{finding.severity}: {finding.message}\n  mend: {finding.mend}"
            typer.echo(printable(text))
        count = len(registry.records())
        typer.echo(f"{count} plugins, {errors} errors, {len(findings) - errors} warnings")
    if errors:
        raise typer.Exit(1)


def _of_configuration(resolved: Resolved, registry: PluginRegistry) -> list[Finding]:
    """What plugins propose, each by itself, and the lock file of a frozen configuration."""
    from framework.config.choices import check_frozen
    from framework.config.proposals import check_proposals
    from framework.errors import FrameworkError
    from framework.plugins.doctor.findings import of_error
    from framework.plugins.records import State

    found = []
    for record in registry.records():
        if record.state is State.DENIED:
            continue
        try:
            resolved.with_proposals(each.setting for each in check_proposals(record))
        except FrameworkError as error:
            found.append(of_error("proposal", error, record))
    try:
        check_frozen(resolved.config, registry)
    except FrameworkError as error:
        found.append(of_error("lock", error))
    return found
