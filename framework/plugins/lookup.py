"""From a name to one record: duplicates, replacements, near matches, the line to install."""

from __future__ import annotations

import importlib.metadata as importlib_metadata
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from framework.errors import PluginError
from framework.plugins.discovery import CORE
from framework.plugins.kinds import Kind
from framework.plugins.near import near
from framework.plugins.policy import ALLOW_VARIABLE, DENY_VARIABLE, NO_PLUGINS, normalize
from framework.plugins.records import Record, State
from framework.shown import shown

_INSTALLABLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}\Z")


def claims(records: Iterable[Record], name: str) -> list[Record]:
    """Records that `name` or `name@distribution` means."""
    base, at, owner = name.partition("@")
    return [
        record
        for record in records
        if record.name == base.strip()
        and (not at or normalize(record.owner) == normalize(owner.strip()))
    ]


def kept_out(records: Iterable[Record]) -> str:
    """What keeps plugins from being candidates, "" where there are none: for whoever finds no
    candidate and would say that nothing is installed."""
    states = (State.DENIED, State.INCOMPATIBLE, State.FAILED)
    return "; ".join(f"{r.key} is {r.state}: {r.reason}" for r in records if r.state in states)


def one_of(found: Sequence[Record]) -> Record:
    """The only one of several claims to a name, or the one that the operator pinned.

    Raises PluginError that names all of them.
    """
    left = [r for r in found if not any(replaces(other, r) for other in found)]
    if len(left) > 1:
        left = [r for r in left if r.named_by is not None and r.named_by.pins] or left
    if len(left) == 1:
        return left[0]
    owners = [f"{r.name}@{r.owner}" for r in found]
    raise PluginError(
        f"plugin {found[0].kind}:{found[0].name} is claimed by {' and by '.join(owners)}",
        plugin=f"{found[0].kind}:{found[0].name}",
        distribution=", ".join(r.owner for r in found),
        expected="one claim to a name that is used",
        found=", ".join(f"{r.owner} ({r.location or r.value})" for r in found),
        mend=f"choose {' or '.join(owners)}, or deny one with {DENY_VARIABLE}",
    )


def replaces(replacer: Record, record: Record) -> bool:
    """Whether it stands in for the other; that acts only when the operator named the replacer."""
    return (
        replacer is not record
        and replacer.usable
        and replacer.named_exactly
        and replacer.facts is not None
        and record.name in replacer.facts.replaces
    )


def replacement(record: Record, records: Sequence[Record]) -> Record:
    """What stands in for `record`, or the record itself.

    Raises PluginError for two replacers of one plugin and for a circle.
    """
    seen = [record]
    while replacers := [r for r in records if replaces(r, seen[-1])]:
        if len(replacers) > 1 or replacers[0] in seen:
            raise _unclear(record, [*replacers, *seen], circle=replacers[0] in seen)
        seen.append(replacers[0])
    return seen[-1]


def unreplaced(records: Sequence[Record]) -> list[Record]:
    """Records for which nothing else stands in.  Raises PluginError where some replace one another
    in a circle: none of them would be left."""
    kept = [r for r in records if not any(replaces(other, r) for other in records)]
    if len(kept) < len(records):
        for record in records:
            if record.usable and record not in kept:
                _expect_end(record, kept, records)
    return kept


def _expect_end(record: Record, kept: Sequence[Record], records: Sequence[Record]) -> None:
    """Of a plugin that is replaced: someone in the end replaces it who is not."""
    reached = [record]
    for one in reached:
        if one in kept:
            return
        reached += [r for r in records if replaces(r, one) and r not in reached]
    raise _unclear(record, reached, circle=True)


def _unclear(record: Record, among: Iterable[Record], *, circle: bool) -> PluginError:
    """The error for a plugin with two replacers, or in a circle of such."""
    why = "they replace one another in a circle" if circle else "several would"
    names = ", ".join(sorted({one.key for one in among}))
    return PluginError(
        f"it is not clear what replaces plugin {record.key}, {why}: {names}",
        plugin=record.key,
        distribution=record.distribution,
        expected="one replacer, and no circle",
        found=names,
        mend=f"name only one of them in {ALLOW_VARIABLE}",
    )


def replaced(records: Sequence[Record]) -> Iterator[tuple[Record, Record]]:
    """Records that could be used, each with the one that stands in for it."""
    for record in records:
        for other in records if record.usable else ():
            if replaces(other, record):
                yield record, other


def state_lines(records: Iterable[Record]) -> Iterator[str]:
    """A line for each record that is not merely there."""
    for record in records:
        if record.state is not State.DISCOVERED:
            took = "" if record.load_seconds is None else f", loaded in {record.load_seconds:.3f} s"
            reason = f": {record.reason}" if record.reason else ""
            yield f"plugin {record.key} {record.version or '-'} is {record.state}{took}{reason}"


def unknown(
    name: str, kind: str | None, records: Sequence[Record], first_party: frozenset[str]
) -> PluginError:
    """The error for a name that nothing claims, with near matches and what to install."""
    base = name.partition("@")[0].strip()
    pool = [r for r in records if kind is None or r.kind == kind]
    hits = near(base, {r.name for r in pool})
    like = [f"{r.name} ({r.key}, {r.location or r.value})" for r in pool if r.name in hits]
    wanted = f"{kind}:{name}" if kind else name
    return PluginError(
        f"unknown plugin {shown(wanted)}"
        + (f" (did you mean {' or '.join(repr(hit) for hit in hits)}?)" if hits else ""),
        plugin=wanted,
        expected=f"one of {', '.join(sorted({r.name for r in pool}))}"
        if pool
        else "an installed one, and there is none of this kind",
        found=f"{shown(name)}; near: {'; '.join(like)}" if like else shown(name),
        mend=_install(base, first_party),
    )


def _install(name: str, first_party: frozenset[str]) -> str:
    if not _INSTALLABLE.match(name):
        return "correct the name; `framework plugins list` shows what there is"
    ours = f"framework-plugin-{normalize(name)}"
    if ours in first_party:
        return f"pip install {ours}"
    if not any(_installed(distribution) for distribution in first_party - {CORE}):
        return f"pip install 'framework[default]', or the distribution that has {name!r}"
    return (
        f"correct the name, or pip install the distribution that has it, such as {ours}; "
        f"`framework plugins list` shows what there is"
    )


def _installed(distribution: str) -> bool:
    try:
        importlib_metadata.distribution(distribution)
    except importlib_metadata.PackageNotFoundError:
        return False
    return True


def note_shared_names(records: Sequence[Record]) -> None:
    """Write down where several claim one name, so that a list shows it before it is used."""
    shared: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.usable:
            shared.setdefault((record.kind, record.name), []).append(record)
    for claimants in shared.values():
        for record in claimants if len(claimants) > 1 else ():
            others = ", ".join(r.owner for r in claimants if r is not record)
            record.reason = f"name also claimed by {others}: say {record.name}@{record.owner}"


def denied(found: Sequence[Record]) -> PluginError:
    """The error for a name whose every claim the policy denies."""
    record = found[0]
    mends = {
        DENY_VARIABLE: f"take it out of {DENY_VARIABLE}",
        NO_PLUGINS: f"leave out {NO_PLUGINS}",
    }
    return PluginError(
        f"plugin {' and '.join(r.key for r in found)} is denied: {record.reason}",
        plugin=record.key,
        distribution=record.distribution,
        expected="a plugin that the policy admits",
        found="; ".join(f"{r.owner}: {r.reason}" for r in found),
        mend=mends.get(record.reason.split(" ", 1)[0], f"name it in {ALLOW_VARIABLE}"),
    )


def unusable(record: Record) -> PluginError:
    """The error for a plugin that failed before or does not fit."""
    return PluginError(
        f"plugin {record.key} is {record.state}: {record.reason}",
        plugin=record.key,
        distribution=record.distribution,
        expected="a plugin that fits this core and can be imported",
        found=f"{record.owner} {record.version or ''} at {record.location or record.value}",
        mend=f"upgrade or correct {record.owner}",
    )


def elsewhere(record: Record, kind: Kind, here: Iterable[str]) -> PluginError:
    """The error for a plugin that does not run in this process."""
    return PluginError(
        f"plugin {record.key} does not run in this process",
        plugin=record.key,
        distribution=record.distribution,
        expected=f"a {record.kind} for {', '.join(sorted(here))}",
        found=f"one for {', '.join(sorted(record.scopes(kind)))}",
        mend=f"choose another {record.kind}, or widen the scopes in the manifest of {record.owner}",
    )


def resolve(
    name: str,
    kind: Kind,
    records: Sequence[Record],
    *,
    first_party: frozenset[str],
    lift: Callable[[Record], None] | None = None,
) -> Record:
    """The record of `name` or `name@distribution` among those of its kind.

    lift: given when the operator chose the name; called for a record that was denied only
    until named.  Raises PluginError for an unknown, denied, unusable or ambiguous name.
    """
    found = claims(records, name)
    if not found:
        raise unknown(name, kind.name, records, first_party)
    live = [r for r in found if r.state is not State.DENIED]
    if not live and lift is not None:
        live = [r for r in found if r.until_named]
        for record in live:
            lift(record)
    if not live:
        raise denied(found)
    record = one_of(live)
    if "@" not in name:
        record = replacement(record, records)
    if not record.usable:
        raise unusable(record)
    return record
