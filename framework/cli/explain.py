"""`framework explain KIND`: which plugin would be chosen, and why not the others."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from framework.cli import options
from framework.cli.attention_queries import attention_queries
from framework.cli.context import resolved_of
from framework.cli.model_query import KINDS, model_query
from framework.cli.place import Place, parse_capability
from framework.cli.printing import (
    Json,
    plain,
    plugins_speak_aside,
    print_json,
    show_problems,
    show_table,
)
from framework.cli.usual import (
    configured,
    detections,
    platform_ranking,
    usual_queries,
    usual_query,
)
from framework.contracts.attention_backend import AttentionQuery
from framework.contracts.model import ArchitectureQuery

if TYPE_CHECKING:
    from framework.config.sections import EngineConfig
    from framework.contracts.base import Query
    from framework.errors import FrameworkError
    from framework.plugins.kinds import Kind
    from framework.plugins.registry import PluginRegistry

ATTENTION = "attention_backend"
_ABOUT = ", ".join((*KINDS, ATTENTION))


def explain(
    context: typer.Context,
    kind: Annotated[str, typer.Argument(help="A kind of plugins, such as attention_backend.")],
    choice: Annotated[
        str | None, typer.Option(help="As if the operator had chosen this name.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help=f"Ask what this model's start asks: {_ABOUT}."),
    ] = None,
    platform: Annotated[
        str | None, typer.Option(help="As if the operator had chosen this platform.")
    ] = None,
    capability: Annotated[
        str | None,
        typer.Option(help="As if that platform had a device of this capability, such as 9.0."),
    ] = None,
    config: options.Config = None,
    settings: options.Settings = None,
    as_json: Json = False,
) -> None:
    """Print all candidates of a kind with their answers to its usual query, or to that of a
    model, under this configuration."""
    from framework.config.choices import open_registry

    said = resolved_of(context, None, config, settings).config
    registry = open_registry(said)
    row = _kind_named(registry, kind)
    place = Place(registry, said, platform, _capability(capability))
    queries: Sequence[Query | None]
    asked = []
    with plugins_speak_aside():
        if model is None:
            queries = _queries(place, row, said) or (None,)
        elif row.name == ATTENTION:
            queries = _attention(place, row, said, model)
        else:
            queries = (model_query(registry, row.name, model),)
        for query in queries:
            name = choice or configured(said, row, query)
            rows, failure = _asked(place, row, query, name)
            asked.append((query, rows, failure))
    if as_json:
        facts: list[dict[str, Any]] = [
            {
                "query": query and str(query),
                "error": failure and failure.as_dict(),
                "candidates": rows,
            }
            for query, rows, failure in asked
        ]
        print_json({"kind": row.name, "questions": facts})
    else:
        for query, rows, failure in asked:
            _print(rows, query)
            if not rows:
                typer.echo(_nothing(row), err=True)
            elif query is None and row.name in KINDS:
                typer.echo("by rank only; with --model MODEL they are asked about it", err=True)
            if failure:
                typer.echo(str(failure), err=True)
    show_problems(registry)
    if any(failure for _, _, failure in asked):
        raise typer.Exit(1)


def _capability(text: str | None) -> tuple[int, int] | None:
    return None if text is None else parse_capability(text)


def _kind_named(registry: PluginRegistry, name: str) -> Kind:
    """The kind of that name, or the only one that begins so: "attention" will do."""
    longer = [kind.name for kind in registry.kinds if kind.name.startswith(f"{name}_")]
    known = any(kind.name == name for kind in registry.kinds)
    return registry.kind(longer[0] if len(longer) == 1 and not known else name)


def _attention(place: Place, kind: Kind, config: EngineConfig, model: str) -> Sequence[Query]:
    """What the configuration of a model asks of attention, where a platform is ready."""
    usual = usual_query(place, kind, config)
    about = model_query(place.registry, "model", model)
    if not isinstance(usual, AttentionQuery) or not isinstance(about, ArchitectureQuery):
        return ()
    return attention_queries(usual, about.config)


def _queries(place: Place, kind: Kind, config: EngineConfig) -> Sequence[Query]:
    """What candidates of a kind are asked here: what the contract's file publishes, or the
    usual query."""
    query = default_query(kind) or usual_query(place, kind, config)
    return (query,) if query is not None else usual_queries(place, kind)


def _asked(
    place: Place, kind: Kind, query: Query | None, choice: str | None
) -> tuple[list[dict[str, Any]], FrameworkError | None]:
    """Rows for one query, and the error of a selection that would not succeed."""
    if query is None:
        return _candidates(place.registry, kind, choice), None
    return _answers(place, kind, query, choice)


def default_query(kind: Kind) -> Query | None:
    """What the contract's file publishes as `default_query()`, or None."""
    if kind.contract is None:
        return None
    contract = importlib.import_module(kind.contract.partition(":")[0])
    make = getattr(contract, "default_query", None)
    query: Query | None = make() if make is not None else None
    return query


def _nothing(kind: Kind) -> str:
    """Why a table is empty."""
    if kind.contract is None:
        return f"no contract yet: this release only reserves the name {kind.name}"
    return f"no {kind.name} is installed (entry-point group {kind.group})"


def _answers(
    place: Place, kind: Kind, query: Query, choice: str | None
) -> tuple[list[dict[str, Any]], FrameworkError | None]:
    """Rows, and the error of a selection that would not succeed."""
    from framework.errors import PluginError
    from framework.plugins.selection import ask_all, select

    registry, ranking = place.registry, platform_ranking(place, kind)
    table = ask_all(registry, kind.name, query)
    rows = [row.as_dict() for row in table]
    try:
        chosen = select(registry, kind.name, query, operator=choice, ranking=ranking).record
    except PluginError as error:
        return rows, error
    for row, shown in zip(table, rows, strict=True):
        if row.record is chosen:
            shown["verdict"] = "chosen"
    return rows, None


def _candidates(registry: PluginRegistry, kind: Kind, choice: str | None) -> list[dict[str, Any]]:
    """Rows of a kind without a query: state, rank and facts."""
    from framework.plugins.ordering import by_rank

    chosen = registry.find(kind.name, choice, named=True) if choice else None
    registry.check()
    detected = detections(registry) if kind.name == "platform" else {}
    return [
        {
            "name": record.name,
            "distribution": record.distribution,
            "rank": record.rank,
            "state": record.state.value,
            "verdict": "chosen" if record is chosen else "",
            "reasons": [r for r in (record.reason, detected.get(record.name)) if r],
            "facts": record.facts.facts if record.facts else "unknown",
        }
        for record in sorted(registry.records(kind.name), key=by_rank)
    ]


def _print(rows: list[dict[str, Any]], query: Query | None) -> None:
    from rich.table import Table

    if query is not None:
        typer.echo(f"query: {query}")
    last = "reasons" if query is not None else "facts and reasons"
    table = Table("name", "distribution", "rank", "state", "verdict", last, box=None)
    for row in rows:
        texts = [str(row["facts"])] if row.get("facts") else []
        cells = [row["name"], row["distribution"] or "ad-hoc", row["rank"], row["state"]]
        texts += row["reasons"]
        table.add_row(*(plain(str(cell)) for cell in [*cells, row["verdict"], "; ".join(texts)]))
    show_table(table)
