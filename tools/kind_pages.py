"""`make docs`: one page per kind in docs/kinds, built from contract, suite, plugins and template.

A page says what the code says; nothing in docs/kinds is written by hand.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from framework.plugins.kinds import KINDS, Kind
from framework.plugins.loading import contract_of
from framework.scaffold import plugin_source
from framework.testing.conformance import Suite, clauses_of, suite_of
from tools import markdown as md
from tools.first_party import plugins_of
from tools.surface import (
    doc_of,
    fields_of,
    methods_of,
    module_of,
    own_classes,
    public_names,
    types_of,
)

FOLDER = Path(__file__).parents[1] / "docs" / "kinds"
MEND = "run `make docs`"
EXAMPLE = "mine"
NOTE = "<!-- Built by `make docs`; what is wrong here is to be mended in the code. -->"
CONTRACTS = "../../framework/contracts"


def documented() -> list[Kind]:
    """The kinds that have a contract."""
    return [kind for kind in KINDS if kind.contract is not None]


def pages() -> Mapping[str, str]:
    """File name -> text of every page."""
    made = {f"{kind.name}.md": page(kind) for kind in documented()}
    return {"README.md": index(), **made}


def index() -> str:
    """The list of kinds, and the clauses that hold for all."""
    rows = [
        [
            f"[{kind.name}]({kind.name}.md)",
            purpose(kind),
            kind.version,
            kind.stability.value,
            md.code(kind.group),
            "allowed" if kind.third_party.value == "allowed" else "when named",
        ]
        for kind in documented()
    ]
    head = ["kind", "what it is for", "contract", "stability", "entry-point group", "third parties"]
    reserved = ", ".join(md.code(kind.name) for kind in KINDS if kind.contract is None)
    return md.join(
        NOTE,
        "# Kinds of plugins",
        "A kind with a page has a contract in this release. *Stable* ones keep it: a change needs "
        "a new version. *Provisional* ones may still change with any release.",
        md.table(head, rows),
        f"Names and groups are reserved for {reserved}; their contracts come with their first "
        "implementation.",
        "## Clauses of every kind",
        "What `framework plugins conform` checks of any plugin, before the clauses of its kind.",
        _clauses(Suite, frozenset()),
    )


def page(kind: Kind) -> str:
    """The page of one kind."""
    contract = contract_of(kind)
    head, _, rest = doc_of_module(kind).partition("\n")
    scopes = " or ".join(sorted(scope.value for scope in kind.scopes))
    file = module_of(kind).__name__.rpartition(".")[2] + ".py"
    return md.join(
        NOTE,
        f"# {kind.name}",
        md.sentence(head.partition(": ")[2]),
        rest,
        md.table(
            ["contract", "version", "stability", "entry-point group", "runs in", "in use"],
            [
                [
                    f"[{md.code(contract.__name__)}]({CONTRACTS}/{file})",
                    kind.version,
                    kind.stability.value,
                    md.code(kind.group),
                    scopes,
                    kind.cardinality.value.replace("_", " "),
                ]
            ],
        ),
        _contract(kind, contract),
        _types(kind, contract),
        _capabilities(kind),
        _plugins(kind),
        "## Clauses",
        _suite(kind),
        "## Smallest example",
        f"`framework plugins new {kind.name} {EXAMPLE}` writes this; the tests run it.",
        md.block(plugin_source(kind, EXAMPLE), "python"),
    )


def purpose(kind: Kind) -> str:
    """The first sentence of the contract's module, after the name of the kind."""
    return doc_of_module(kind).partition("\n")[0].partition(": ")[2].rstrip(".")


def doc_of_module(kind: Kind) -> str:
    """The docstring of the contract's module.  Its first line reads "Kind `name`: ..."."""
    text = module_of(kind).__doc__ or ""
    expected = f"Kind `{kind.name}`: "
    if not text.startswith(expected):
        raise ValueError(f"the docstring of {kind.contract} does not begin with {expected!r}")
    return text.strip()


def _contract(kind: Kind, contract: type) -> str:
    attributes = [
        [md.code(field.name), md.code(field.type), md.code(field.default or "") or "to be set"]
        for field in fields_of(contract)
    ]
    methods = methods_of(contract, inherited=True)
    return md.join(
        "## Contract",
        doc_of(contract),
        md.table(["class attribute", "type", "default"], attributes) if attributes else "",
        *(md.method(method) for method in methods),
    )


def _types(kind: Kind, contract: type) -> str:
    """Queries, answers and whatever else its methods take and give."""
    parts = []
    for name, cls in own_classes(module_of(kind)):
        if cls is not contract:
            parts += [f"### {name}", doc_of(cls), md.fields(fields_of(cls))]
            parts += [md.method(method) for method in methods_of(cls)]
    for name, value in public_names(module_of(kind)):
        if isinstance(value, Mapping) and all(map(is_dataclass, value.values())):
            parts += [f"### {name}", *(_row(key, row) for key, row in value.items())]
    files: dict[str, list[str]] = {}
    for cls in types_of(kind):
        if cls.__name__ != "Contract":
            files.setdefault(cls.__module__.rpartition(".")[2], []).append(md.code(cls.__name__))
    if files:
        parts.append("Of other files:")
        parts.append(
            "\n".join(
                f"- [{file}.py]({CONTRACTS}/{file}.py): {', '.join(names)}"
                for file, names in files.items()
            )
        )
    return md.join("## Values", *parts) if parts else ""


def _row(name: str, value: Any) -> str:
    """One value of a table of a contract: what it has, field by field."""
    found = [(field.name, getattr(value, field.name)) for field in fields(value)]
    lines = [f"- {key}: {_plain(one)}" for key, one in found if one]
    return f"`{name}`:\n\n" + "\n".join(lines)


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"`{key}` {one}" for key, one in value.items())
    return ", ".join(md.code(one) for one in value) if isinstance(value, tuple) else str(value)


def _capabilities(kind: Kind) -> str:
    suite = suite_of(kind.name)
    clauses = clauses_of(suite)
    rows = [
        [
            md.code(name),
            ", ".join(clause.id for clause in clauses if name in clause.needs),
            ", ".join(clause.id for clause in clauses if clause.lacks == name),
        ]
        for name in suite.capabilities
    ]
    if not rows:
        return ""
    return md.join(
        "## Capabilities",
        inspect.getdoc(suite.declared) or "",
        md.table(["capability", "checked where declared", "checked where not"], rows),
    )


def _plugins(kind: Kind) -> str:
    found = plugins_of(kind)
    if not found:
        return ""
    parts = [
        md.table(
            ["plugin", "what it does", "distribution"],
            [[md.code(p.name), md.cell(p.summary), md.code(p.distribution)] for p in found],
        )
    ]
    for plugin in found:
        if plugin.options:
            parts += [f"Options of `{plugin.name}`:", md.table(*plugin.option_table())]
    return md.join("## Plugins of this release", *parts)


def _suite(kind: Kind) -> str:
    suite = suite_of(kind.name)
    common = {clause.id for clause in clauses_of(Suite)}
    if suite is Suite:
        return "Those of [every kind](README.md#clauses-of-every-kind): load, select and close."
    return md.join(
        f"`{suite.__module__}.{suite.__name__}` checks these, and those of "
        "[every kind](README.md#clauses-of-every-kind).",
        _clauses(suite, frozenset(common)),
    )


def _clauses(suite: type[Suite], without: frozenset[str]) -> str:
    rows = []
    for clause in clauses_of(suite):
        if clause.id in without:
            continue
        only = [f"with {' and '.join(map(md.code, clause.needs))}"] if clause.needs else []
        only += [f"without `{clause.lacks}`"] if clause.lacks else []
        rows.append(
            [
                clause.id,
                "MUST" if clause.must else "SHOULD",
                clause.since,
                md.cell(clause.text),
                ", ".join([*map(md.code, clause.of), *only]),
            ]
        )
    return md.table(["clause", "level", "since", "what must hold", "of"], rows)


def stale(made: Mapping[str, str]) -> list[str]:
    """Where the pages on disk differ from those that were made, one sentence each."""
    there = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    found = [f"docs/kinds/{name} is not there" for name in made if name not in there]
    found += [f"docs/kinds/{name} belongs to no kind" for name in there if name not in made]
    for name, text in made.items():
        if name in there and there[name] != text:
            pairs = zip(text.splitlines(), there[name].splitlines(), strict=False)
            line = next((at for at, (a, b) in enumerate(pairs, 1) if a != b), 0)
            found.append(f"docs/kinds/{name} is not what the code says, from line {line or 'end'}")
    return found


def main() -> None:
    """Write all pages; remove those of kinds that are gone."""
    made = pages()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path in FOLDER.glob("*.md"):
        if path.name not in made:
            path.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    print(f"{len(made)} pages in {FOLDER}", file=sys.stderr)


if __name__ == "__main__":
    main()
