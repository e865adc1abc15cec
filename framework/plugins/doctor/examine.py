"""All checks, in the order in which they are worth mending."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from framework.errors import FrameworkError
from framework.plugins.doctor.findings import Finding, about, of_error, of_problem
from framework.plugins.doctor.imports import imports
from framework.plugins.doctor.metadata import (
    doubled_metadata,
    outdated_installs,
    stale_entry_points,
    unmet_requirements,
)
from framework.plugins.kinds import Cardinality
from framework.plugins.lookup import replacement
from framework.plugins.near import did_you_mean
from framework.plugins.ordering import in_order
from framework.plugins.records import Record, State
from framework.plugins.registry import PluginRegistry
from framework.plugins.resolved import Choices
from framework.shown import shown


def examine(
    registry: PluginRegistry,
    choices: Choices | None = None,
    *,
    search_path: Sequence[str] | None = None,
    try_imports: bool = True,
    slow: float = 1.0,
    budget: float = 10.0,
) -> list[Finding]:
    """Everything that is wrong, errors first.

    choices: kind -> names that the configuration says.  search_path: as the registry's.
    try_imports: also import, in another process, whatever may be used.  slow, budget: seconds
    from which on an import is too slow, and after which it counts as hung.
    Plugins that the policy denies are not imported, and what they lack is not told.
    """
    records = registry.records()
    admitted = [record for record in records if record.state is not State.DENIED]
    findings = [of_problem(problem) for problem in registry.problems]
    stale = list(stale_entry_points(admitted))
    findings += stale
    findings += doubled_metadata(search_path)
    findings += outdated_installs(search_path)
    findings += unmet_requirements(admitted, search_path)
    findings += _manifests(registry, admitted)
    findings += _duplicates(registry, admitted)
    findings += _orders(registry, admitted)
    findings += _choices(registry, choices or {})
    if try_imports:
        gone = {finding.plugin for finding in stale}
        whole = [r for r in registry.records() if _can_be_tried(registry, r) and r.key not in gone]
        findings += imports(whole, registry.kinds, slow=slow, budget=budget)
    unique = dict.fromkeys(findings)
    return sorted(unique, key=lambda finding: finding.severity != "error")


def _can_be_tried(registry: PluginRegistry, record: Record) -> bool:
    has_contract = registry.kind(record.kind).contract is not None
    return record.usable and record.origin != "registered" and has_contract


def _manifests(registry: PluginRegistry, records: Sequence[Record]) -> Iterator[Finding]:
    """Manifests that cannot be read, and what they say that does not fit this core."""
    for record in records:
        if record.state not in (State.FAILED, State.INCOMPATIBLE):
            continue
        kind = registry.kind(record.kind)
        code, mend = "manifest", f"upgrade or correct {record.owner}"
        if record.facts is not None and record.facts.fits(kind) is None:
            code = "contract"
            mend = (
                f"upgrade {record.owner} to a release for contract {kind.version} of {kind.name}, "
                f"or install a core that has contract {record.facts.contract}"
            )
        elif record.facts is not None and kind.needs - set(record.facts.scopes):
            code = "scope"
            needs = ", ".join(sorted(kind.needs))
            mend = f"the scopes in the manifest of {record.owner} have to hold {needs}; upgrade it"
        yield about(record, code, f"{record.key} is {record.state}: {record.reason}", mend)


def _duplicates(registry: PluginRegistry, records: Sequence[Record]) -> Iterator[Finding]:
    """Names that several claim: an error where all of a kind run, else only once it is used."""
    claimed: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.usable:
            claimed.setdefault((record.kind, record.name), []).append(record)
    for (kind, name), found in claimed.items():
        if len(found) > 1:
            many = registry.kind(kind).cardinality is Cardinality.MANY
            owners = [record.owner for record in found]
            yield about(
                found[0],
                "duplicate",
                f"{kind}:{name} is claimed by {' and by '.join(owners)}",
                f"say {' or '.join(f'{name}@{owner}' for owner in owners)} where it is chosen, or "
                f"deny one with FRAMEWORK_PLUGINS_DENY={kind}:{name}@{owners[-1]}",
                warning=not many,
            )


def _orders(registry: PluginRegistry, records: Sequence[Record]) -> Iterator[Finding]:
    """`before` and `after` that no order fulfils, and `replaces` of which it is not clear what
    replaces what."""
    for kind in registry.kinds:
        found = [r for r in records if r.kind == kind.name and r.usable]
        try:
            if kind.cardinality is Cardinality.MANY:
                in_order(found)
            for record in found:
                replacement(record, found)
        except FrameworkError as error:
            yield of_error("order", error)
        names = {record.name for record in registry.records(kind.name)}
        for record in found:
            yield from _slips(record, names)


def _slips(record: Record, names: set[str]) -> Iterator[Finding]:
    """Names in a manifest that no plugin has, and that look like one that some have: others may
    just not be installed."""
    facts = record.facts
    lists = {key: getattr(facts, key) for key in ("replaces", "before", "after")} if facts else {}
    for key, listed in lists.items():
        for name in set(listed) - names:
            hint = did_you_mean(name, names)
            if hint:
                text = f"{record.key}: its manifest has {key} = {shown(name, 80)}, which no "
                text += f"{record.kind} is called{hint}"
                fix = f"correct the manifest of {record.owner}, if that is meant"
                yield about(record, "order", text, fix, warning=True)


def _choices(registry: PluginRegistry, choices: Choices) -> Iterator[Finding]:
    """Names in the configuration that nothing has, or that cannot be used."""
    if any(problem.fatal for problem in registry.problems):
        return  # they would be told again for each choice
    for kind, names in choices.items():
        for name in names:
            try:
                registry.find(kind, name, named=True)
            except FrameworkError as error:
                yield of_error("choice", error)
