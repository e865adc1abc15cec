"""One record per plugin: what is known of it and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from framework.contracts.base import Contract

if TYPE_CHECKING:
    from framework.plugins.kinds import Kind
    from framework.plugins.manifests import Facts
    from framework.plugins.policy import Pattern

Origin = Literal["entry point", "ad hoc", "registered"]


class State(StrEnum):
    """discovered -> denied | incompatible | loading -> failed | loaded -> used -> off.

    off: it failed again and again while it ran, and is called no more.
    """

    DISCOVERED = "discovered"
    DENIED = "denied"
    INCOMPATIBLE = "incompatible"
    LOADING = "loading"
    FAILED = "failed"
    LOADED = "loaded"
    USED = "used"
    OFF = "off"


# denied -> loading: the operator named the plugin after all.  loading -> discovered: the
# import was interrupted from the keyboard.
_NEXT: dict[State, frozenset[State]] = {
    State.DISCOVERED: frozenset(
        {State.DENIED, State.INCOMPATIBLE, State.LOADING, State.FAILED, State.LOADED}
    ),
    State.DENIED: frozenset({State.DISCOVERED}),
    State.INCOMPATIBLE: frozenset(),
    State.LOADING: frozenset({State.LOADED, State.FAILED, State.INCOMPATIBLE, State.DISCOVERED}),
    State.FAILED: frozenset(),
    State.LOADED: frozenset({State.USED, State.FAILED}),
    State.USED: frozenset({State.FAILED, State.USED, State.OFF}),
    State.OFF: frozenset(),
}


@dataclass(slots=True)
class Usage:
    """Guarded calls to a plugin, those of them that failed, and seconds in them; they only rise."""

    calls: int = 0
    errors: int = 0
    seconds: float = 0.0


@dataclass(slots=True, eq=False, kw_only=True)
class Record:
    """A plugin.

    distribution: None for an ad-hoc plugin.  location: where its metadata lies.
    value: "module:attr".  named_by: the operator's pattern that names it.  facts: None
    while unknown.  until_named: it is denied only because nobody named it.
    adapted: the older contract version that an adapter carries it by, or None.
    load_seconds: None before the import.  cls: the class once loaded.  usage: by a Breaker.
    """

    kind: str
    name: str
    distribution: str | None
    version: str | None
    value: str
    origin: Origin = "entry point"
    location: str | None = None
    first_party: bool = False
    state: State = State.DISCOVERED
    reason: str = ""
    named_by: Pattern | None = None
    until_named: bool = False
    inspected: bool = False
    facts: Facts | None = None
    adapted: str | None = None
    load_seconds: float | None = None
    cls: type[Contract] | None = field(default=None, repr=False)
    usage: Usage = field(default_factory=Usage, repr=False)

    @property
    def owner(self) -> str:
        """The distribution, or "ad-hoc"."""
        return self.distribution or "ad-hoc"

    @property
    def key(self) -> str:
        """kind:name@distribution."""
        return f"{self.kind}:{self.name}@{self.owner}"

    @property
    def rank(self) -> int:
        """Higher comes first; 0 while the facts are unknown."""
        return self.facts.rank if self.facts else 0

    def scopes(self, kind: Kind) -> frozenset[str]:
        """Where it runs: what its manifest says, else what its kind does."""
        return frozenset(self.facts.scopes if self.facts else kind.scopes)

    @property
    def usable(self) -> bool:
        """It can be selected."""
        return self.state in (State.DISCOVERED, State.LOADING, State.LOADED, State.USED)

    @property
    def named_exactly(self) -> bool:
        """The operator wrote the plugin's own name, not a glob."""
        return self.named_by is not None and self.named_by.exact

    def move(self, state: State, reason: str = "") -> None:
        """Go to `state`.  A step that the life of a plugin does not have is our own fault."""
        assert state in _NEXT[self.state], f"{self.key}: {self.state} -> {state}"
        self.state = state
        self.reason = reason

    def as_dict(self) -> dict[str, Any]:
        """What `plugins list --json` shows."""
        facts = self.facts
        return {
            "kind": self.kind,
            "name": self.name,
            "distribution": self.distribution,
            "version": self.version,
            "first_party": self.first_party,
            "origin": self.origin,
            "location": self.location,
            "entry_point": self.value,
            "state": self.state.value,
            "reason": self.reason,
            "named_by": self.named_by.text if self.named_by else None,
            "contract": facts.contract if facts else None,
            "adapted": self.adapted,
            "scopes": sorted(facts.scopes) if facts else None,
            "rank": facts.rank if facts else None,
            "load_seconds": self.load_seconds,
            "calls": self.usage.calls,
            "errors": self.usage.errors,
            "seconds": self.usage.seconds,
            "facts": facts.as_dict() if facts else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something wrong that belongs to no single record.  fatal: it stops the start."""

    message: str
    fatal: bool = False
    plugin: str | None = None
    distribution: str | None = None
    mend: str | None = None
