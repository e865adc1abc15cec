"""Bring policy and manifest to a record: denied, incompatible, failed, or as it was."""

from __future__ import annotations

from collections.abc import Sequence

from framework.errors import PluginError
from framework.plugins.kinds import Kind, find_kind
from framework.plugins.manifests import Facts, ManifestReader
from framework.plugins.policy import Pattern, Policy, judge
from framework.plugins.records import Record, State


class Admission:
    """Decides on records; keeps what it has read of manifests."""

    def __init__(self, policy: Policy, kinds: Sequence[Kind]) -> None:
        self._policy = policy
        self._kinds = kinds
        self._manifests = ManifestReader(kinds)

    def judge(self, record: Record) -> None:
        """Apply the policy.  Ad hoc and in code, the act itself names the plugin, so that
        only the deny list can keep it out."""
        verdict = judge(
            self._policy,
            find_kind(record.kind, self._kinds),
            record.name,
            record.distribution,
            first_party=record.first_party or record.origin != "entry point",
        )
        record.named_by = verdict.named_by
        if record.origin == "ad hoc" and record.named_by is None:
            record.named_by = _named(record)
        record.until_named = verdict.until_named
        if not verdict.admitted and record.state is State.DISCOVERED:
            record.move(State.DENIED, verdict.reason)

    def inspect(self, record: Record) -> None:
        """Read the manifest's facts, once, and compare the contract range."""
        if record.inspected or record.origin != "entry point":
            return
        record.inspected = True
        if record.state not in (State.DISCOVERED, State.DENIED):
            return
        denied = record.state is State.DENIED
        try:
            record.facts = self._manifests.facts(record.kind, record.name, record.value)
        except PluginError as error:
            if not denied:
                record.move(State.FAILED, " ".join(str(error).split()))
            return
        if record.facts is not None and not denied:
            self._compare(record, record.facts)

    def _compare(self, record: Record, facts: Facts) -> None:
        """Contract range and scopes of a manifest with what the kind has and needs."""
        kind = find_kind(record.kind, self._kinds)
        version = facts.fits(kind)
        if version is None:
            older = f" and carries {kind.adapter.version}" if kind.adapter else ""
            reason = f"made for contract {facts.contract}, this core has {kind.version}{older}"
            record.move(State.INCOMPATIBLE, reason)
            return
        record.adapted = version if version != kind.version else None
        missing = sorted(kind.needs - set(facts.scopes))
        if missing:
            record.move(
                State.INCOMPATIBLE,
                f"runs in {', '.join(facts.scopes)} only; each {kind.name} has to run in "
                f"{', '.join(missing)} too",
            )

    def lift(self, record: Record) -> None:
        """Admit a plugin that was denied until named."""
        record.move(State.DISCOVERED)
        record.until_named = record.inspected = False
        record.named_by = _named(record)
        self.inspect(record)


def _named(record: Record) -> Pattern:
    return Pattern(
        text=f"{record.kind}:{record.name}",
        name=record.name,
        kind=record.kind,
    )
