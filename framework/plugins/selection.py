"""Choose one plugin of a kind by a query.

Every candidate is asked the same frozen query and answers supported or rejected, with
reasons.  Order: the operator's choice, the platform's ranking, the plugin's rank, first-party
before third-party, the name.  A choice that cannot serve is an error, never a silent fallback.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from framework.contracts.base import Answer, Contract, Query, Rejected, Rejection, Supported
from framework.errors import PluginError, SelectionError
from framework.plugins.blame import of_plugin, told
from framework.plugins.kinds import Kind
from framework.plugins.loading import log
from framework.plugins.lookup import unreplaced
from framework.plugins.manifests import Facts
from framework.plugins.ordering import by_rank
from framework.plugins.records import Record
from framework.plugins.registry import PluginRegistry
from framework.shown import shown

OnFailure = Literal["warn", "raise"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One candidate in the table.

    answer: None when it was not asked; `note` says why, or why it could not answer.
    instance: the object that answered.
    """

    record: Record
    answer: Answer | None = None
    note: str = ""
    instance: Any = None
    chosen: bool = False

    @property
    def settles(self) -> bool:
        """Whether no candidate after this one can be chosen."""
        answer = self.answer
        return answer.final if isinstance(answer, Rejected) else answer is not None

    @property
    def verdict(self) -> str:
        """chosen, supported, rejected, or the state of a plugin that was not asked."""
        if self.chosen:
            return "chosen"
        if self.answer is None:
            return "not asked" if self.record.usable else self.record.state.value
        return "supported" if isinstance(self.answer, Supported) else "rejected"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Sentences: the rejections, or the note."""
        if isinstance(self.answer, Rejected):
            return tuple(str(reason) for reason in self.answer.reasons)
        note = self.answer.note if self.answer else ""
        return tuple(text for text in (note, self.note or self.record.reason) if text)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        codes = self.answer.reasons if isinstance(self.answer, Rejected) else ()
        return {
            "name": self.record.name,
            "distribution": self.record.distribution,
            "rank": self.record.rank,
            "state": self.record.state.value,
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "rejections": [
                {
                    "code": reason.code,
                    "field": reason.field,
                    "found": repr(reason.found),
                    "needed": repr(reason.needed),
                    "remedy": reason.remedy,
                }
                for reason in codes
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The chosen record, the instance that answered, its answer, and all candidates."""

    record: Record
    instance: Any
    answer: Supported
    table: tuple[Row, ...]


def select(
    registry: PluginRegistry,
    kind: str,
    query: Query,
    *,
    operator: str | None = None,
    ranking: Sequence[str] = (),
    on_failure: OnFailure = "warn",
    stop_at_first: bool = False,
) -> Selection:
    """Choose a plugin of `kind` that can serve `query`.

    operator: the operator's choice, `name` or `name@distribution`; then only that one is
    imported and asked.  ranking: names, best first; unknown ones are ignored.  on_failure:
    what a candidate that fails does when the operator did not choose it; "raise" where
    falling back to another would be worse than not starting.  stop_at_first: candidates after
    the first that supports are not imported; for kinds whose late candidates are costly to
    ask.  The choice is the same.

    Raises SelectionError with all reasons when the choice, or every candidate, cannot
    serve; PluginError for a choice that is unknown, denied or fails, and for two claims to
    the name that won.
    """
    if operator is not None:
        record = registry.find(kind, operator, named=True)
        row = _ask(registry, record, query)
        others = [Row(record=r) for r in registry.records(kind) if r is not record]
        table = [row, *others]
        return _take(registry, kind, row, table, f"chosen {kind} {operator!r} cannot serve")
    table = ask_all(
        registry,
        kind,
        query,
        ranking=ranking,
        on_failure=on_failure,
        stop_at_first=stop_at_first,
    )
    best = next((row for row in table if row.settles), None)
    if best is None:
        raise SelectionError(
            f"no {kind} can serve this:\n{explain_table(table)}",
            plugin=kind,
            expected=f"one {kind} that supports {query!s:.500}",
            found=f"{len(table)} installed, none that supports it",
            mend="follow a remedy of the table, or install another plugin of the kind",
        )
    # Two distributions that claim the winning name are an error; the table settles nothing.
    registry.find(kind, best.record.name)
    refusal = f"{kind} {best.record.name!r} finds a fault in what was asked"
    return _take(registry, kind, best, table, refusal)


def ask_all(
    registry: PluginRegistry,
    kind: str,
    query: Query,
    *,
    ranking: Sequence[str] = (),
    on_failure: OnFailure = "warn",
    stop_at_first: bool = False,
) -> list[Row]:
    """Ask every candidate; rows in the order of preference, then those not asked.

    stop_at_first: ask none after the first that supports, or finds a fault in the query.
    """
    ranks = {name: position for position, name in reversed(list(enumerate(ranking)))}
    candidates = sorted(
        registry.candidates(kind), key=lambda r: (ranks.get(r.name, len(ranks)), *by_rank(r))
    )
    table: list[Row] = []
    for record in candidates:
        if stop_at_first and any(row.settles for row in table):
            table.append(Row(record=record))
            continue
        try:
            table.append(_ask(registry, record, query))
        except PluginError as error:
            if record.named_exactly or registry.policy.strict or on_failure == "raise":
                raise
            log.warning("%s is left out: %s", record.key, error.message)
            table.append(Row(record=record, answer=_failure(record, error)))
    asked = {id(record) for record in candidates}
    everything = registry.records(kind)
    kept = {id(record) for record in unreplaced(everything)}
    for record in everything:
        if id(record) not in asked:
            note = "" if id(record) in kept else "replaced by a plugin that the operator named"
            table.append(Row(record=record, note=note))
    return table


def explain_table(table: Iterable[Row]) -> str:
    """The table as text, one line per candidate and one per further reason."""
    lines = []
    for row in table:
        head = f"  {row.record.name} ({row.record.owner}): {row.verdict}"
        reasons = row.reasons
        lines.append(head + (f": {reasons[0]}" if reasons else ""))
        lines += [f"      {reason}" for reason in reasons[1:]]
    return "\n".join(lines) if lines else "  nothing is installed"


def _take(
    registry: PluginRegistry, kind: str, row: Row, table: Sequence[Row], refusal: str
) -> Selection:
    if not isinstance(row.answer, Supported):
        raise SelectionError(
            f"{refusal}: {'; '.join(row.reasons)}",
            plugin=row.record.key,
            distribution=row.record.distribution,
            expected=f"a {kind} that supports the query",
            found=f"{len(row.reasons)} reasons against {row.record.key}",
            mend="follow a remedy above, or choose another; see `framework explain`",
        )
    for off in row.answer.turns_off:
        registry.note_off(off.feature, row.record, off.reason)
    chosen = tuple(dataclasses.replace(r, chosen=True) if r is row else r for r in table)
    return Selection(record=row.record, instance=row.instance, answer=row.answer, table=chosen)


def _ask(registry: PluginRegistry, record: Record, query: Query) -> Row:
    """One row; PluginError that names the candidate for whatever fails in it."""
    late = _too_new(record, registry.kind(record.kind), query)
    if late is not None:
        return Row(record=record, answer=late)
    instance = registry.create_record(record)
    try:
        answer = _answer_of(record, instance)(query)
    except BaseException as error:
        raise _broken(record, told(of_plugin(error))) from error
    if not isinstance(answer, Supported | Rejected):
        raise _broken(record, f"it answered {shown(answer)}")
    return Row(record=record, answer=answer, instance=instance)


def _answer_of(record: Record, instance: Contract) -> Any:
    answer = getattr(instance, "answer", None)
    if answer is None:
        raise TypeError(f"kind {record.kind!r} is not selected by a query")
    return answer


def _too_new(record: Record, kind: Kind, query: Query) -> Rejected | None:
    """A candidate older than a field with a value that matters is not asked."""
    facts = record.facts or Facts(kind=kind.name, name=record.name)
    known = facts.knows_until(kind)
    late = query.newer_than(known)
    if not late:
        return None
    return Rejected(
        tuple(
            Rejection(
                code="contract_version",
                field=field,
                found=value,
                needed=f"a plugin that knows more than contract {known[0]}.{known[1]}",
                remedy=f"upgrade {record.owner}",
            )
            for field, value in late.items()
        )
    )


def _broken(record: Record, what: str) -> PluginError:
    return PluginError(
        f"plugin {record.key} failed to answer: {what}",
        plugin=record.key,
        distribution=record.distribution,
        expected="Supported or Rejected",
        found=what,
        mend=f"upgrade or deny {record.owner}",
    )


def _failure(record: Record, error: PluginError) -> Rejected:
    return Rejected(
        (
            Rejection(
                code="failed",
                field="plugin",
                found=error.message,
                needed="a plugin that works",
                remedy=error.mend or f"upgrade or deny {record.owner}",
            ),
        )
    )
