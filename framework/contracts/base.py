"""What every contract shares: the base class, the answer to a query, versioned fields.

A *plugin* is a class named by an entry point.  The class derives from the contract of its
kind.  The runtime makes one instance per use with `cls(options)`.
"""

from __future__ import annotations

import dataclasses
from abc import ABC
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from framework.errors import UnsupportedError
from framework.shown import shown

if TYPE_CHECKING:
    from pydantic import BaseModel

P = TypeVar("P")


class Contract(ABC):
    """Base of all contracts.

    Class attributes:
        kind: name of the kind, a row in the kinds table.
        Options: a pydantic model for `--plugin-option kind.name.key=value`, or None when the
            plugin takes no options.

    The constructor is called with an instance of Options, or with None if there are none.  It
    must be cheap and must not import heavy libraries, touch a device or start a thread; that
    belongs in the first method that needs it.

    plugin_id: "kind:name@distribution" of an instance, for messages.  The registry sets it after
    the constructor.
    """

    kind: ClassVar[str]
    Options: ClassVar[type[BaseModel] | None] = None
    plugin_id: str = ""

    def __init__(self, options: BaseModel | None = None) -> None:
        self.options = options


def name_of(plugin: object) -> str:
    """What messages call a plugin: its `plugin_id`, or its class if no registry made it."""
    own = getattr(plugin, "plugin_id", "")
    return own or f"{type(plugin).__module__}:{type(plugin).__qualname__}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """One reason why a candidate cannot serve a query.

    code: short and stable, for programs ("head_size").  field: field of the query.
    found / needed: the value asked for, and what would be possible.  remedy: one sentence.
    """

    code: str
    field: str
    found: object
    needed: object
    remedy: str

    def __str__(self) -> str:
        return f"{self.field}={shown(self.found)}, needs {self.needed}: {self.remedy}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnedOff:
    """What does not work, or only more slowly, once this plugin is chosen.

    feature: as the operator knows it ("prefix caching").  reason: one sentence.
    """

    feature: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Supported:
    """The answer of a candidate that can serve.  Kinds with more to say derive from it.

    note: one sentence for `framework explain`.  turns_off: each is a line of the start-up log.
    """

    note: str = ""
    turns_off: tuple[TurnedOff, ...] = ()

    def __post_init__(self) -> None:
        for off in self.turns_off:
            if not isinstance(off, TurnedOff):
                raise TypeError(f"turns_off holds {shown(off)}, which is no TurnedOff")


@dataclass(frozen=True, slots=True)
class Rejected:
    """The answer of a candidate that cannot serve: all reasons, not just the first.

    final: the candidate is the one to ask, and what was asked is wrong in itself (a size below
    zero).  Selection then ends with these reasons; no other candidate gets to guess at it.
    """

    reasons: tuple[Rejection, ...]
    final: bool = False

    def __post_init__(self) -> None:
        if not self.reasons:
            raise ValueError("a rejection needs at least one reason")


Answer = Supported | Rejected

_MISSING: Any = object()


def handed(protocol: type[P]) -> type[P]:
    """Of a protocol that the core fulfils and plugins are only handed: what it gains is no duty of
    theirs, and so a new minor version of the kinds that mention it."""
    protocol.__handed__ = True  # type: ignore[attr-defined]
    return protocol


def versioned(
    *,
    since: str,
    neutral: Any = _MISSING,
    default: Any = _MISSING,
    factory: Callable[[], Any] | None = None,
    secret: bool = False,
    feature: str | None = None,
    hint: bool = False,
) -> Any:
    """A dataclass field that carries the contract version it came with.

    A candidate written for a version before `since` (the lower end of its contract range, or
    `knows` in its manifest) is rejected without being asked, unless the value equals
    `neutral`: then an old plugin cannot tell the difference.
    The neutral value is also the default unless `default` is given, or `factory`, which makes
    one that is equal where the value itself could be changed; without any the field is
    required.  A secret stays out of the query's repr, hence out of messages.

    feature: on a field of a plan, what a plugin has to declare before it is given a plan in which
    the field is not neutral; see `features_of`.

    hint: of a query's field that tells something and asks for nothing, so that a candidate which
    does not know it is asked whatever its value.
    """
    metadata: dict[str, Any] = {"since": since, "feature": feature, "hint": hint}
    if neutral is not _MISSING:
        metadata["neutral"] = neutral
    if factory is not None:
        return dataclasses.field(default_factory=factory, metadata=metadata, repr=not secret)
    value = default if default is not _MISSING else neutral
    if value is _MISSING:
        return dataclasses.field(metadata=metadata, repr=not secret)
    return dataclasses.field(default=value, metadata=metadata, repr=not secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Base of the one frozen question that all candidates of a kind are asked.

    Fields are only ever added, each with `versioned(since=..., neutral=...)`.
    """

    def newer_than(self, version: tuple[int, int]) -> Mapping[str, Any]:
        """Fields that came after contract `version`, are no hints and hold a value that is not
        neutral."""
        late: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            if field.metadata.get("hint"):
                continue
            since = tuple(int(part) for part in field.metadata.get("since", "1.0").split("."))
            value = getattr(self, field.name)
            if since > version and not _is_neutral(field, value):
                late[field.name] = value
        return late


def features_of(plan: Any) -> frozenset[str]:
    """What a plan makes use of: the features of its fields whose value is not neutral.

    plan: a dataclass whose fields carry `versioned(..., feature=...)`.
    """
    return frozenset(
        field.metadata["feature"]
        for field in dataclasses.fields(plan)
        if field.metadata.get("feature") and not _is_neutral(field, getattr(plan, field.name))
    )


def check_features(plugin: object, used: Set[str], declared: Set[str]) -> None:
    """Raises UnsupportedError if a plan uses what `plugin` did not declare."""
    if not used <= declared:
        raise UnsupportedError(
            f"plugin {name_of(plugin)} did not declare what the plan uses",
            expected=f"some of {sorted(declared)}" if declared else "a plan without features",
            found=sorted(used - declared),
            mend="leave it out of the plan, or choose a plugin that declares it",
        )


def _is_neutral(field: dataclasses.Field[Any], value: Any) -> bool:
    if "neutral" not in field.metadata:
        return False
    neutral = field.metadata["neutral"]
    if hasattr(value, "shape") or hasattr(neutral, "shape"):
        import numpy as np

        return bool(np.array_equal(value, neutral))  # == compares arrays entry by entry
    return bool(value == neutral)
