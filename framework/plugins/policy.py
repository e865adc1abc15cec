"""Who may be used: allow and deny lists over `[kind:]name[@distribution]` globs.

Pure functions over values; nothing here reads files or imports plugins.  The lists are
not a sandbox: a plugin that is admitted runs with all rights of the process.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from framework.errors import ConfigError
from framework.plugins.kinds import KINDS, Kind, ThirdParty
from framework.plugins.near import did_you_mean
from framework.shown import shown

ALLOW_VARIABLE = "FRAMEWORK_PLUGINS"
DENY_VARIABLE = "FRAMEWORK_PLUGINS_DENY"
STRICT_VARIABLE = "FRAMEWORK_PLUGINS_STRICT"
NO_PLUGINS = "--no-plugins"
FIRST_PARTY_EXTRA = "first-party"

_GLOB = re.compile(r"[*?\[]")
_NO_NAME = re.compile(r"^\+|[\s:@=]")
_LONGEST = 400
_FORM = "[kind:]name[@distribution]"
_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"", "0", "false", "no", "off"}


def normalize(distribution: str) -> str:
    """The name as package indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def is_on(text: str) -> bool:
    """Whether a variable that may be on or off is not off; one that is neither counts as on."""
    return text.strip().lower() not in _FALSE


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """One entry of a list.  kind, distribution: None matches any.  adds: it had a `+`."""

    text: str
    name: str
    kind: str | None = None
    distribution: str | None = None
    adds: bool = False

    @property
    def exact(self) -> bool:
        """It spells a name out; such a plugin must exist."""
        return not _GLOB.search(self.name)

    @property
    def pins(self) -> bool:
        """It spells name and distribution out."""
        return self.exact and bool(self.distribution) and not _GLOB.search(self.distribution or "")

    def matches(self, kind: str, name: str, distribution: str | None) -> bool:
        """Whether it covers the plugin; `distribution` None is an ad-hoc plugin."""
        owner = normalize(distribution or "ad-hoc")
        return (
            fnmatchcase(name, self.name)
            and (self.kind is None or fnmatchcase(kind, self.kind))
            and (self.distribution is None or fnmatchcase(owner, self.distribution))
        )


def parse_pattern(
    text: str, kinds: Sequence[Kind] = KINDS, *, what: str = "plugin pattern"
) -> Pattern:
    """Read `[+][kind:]name[@distribution]`; white space around each part is ignored.

    what: how the ConfigError calls it.
    """
    stripped = text.strip()
    adds = stripped.startswith("+")
    body, at, distribution = stripped.removeprefix("+").partition("@")
    head, colon, tail = body.partition(":")
    kind, name = (head.strip(), tail.strip()) if colon else (None, body.strip())
    owner = distribution.strip()
    if not name or kind == "" or (at and not owner):
        raise ConfigError(
            f"{what} {shown(stripped)} is incomplete",
            expected=_FORM,
            found=shown(stripped),
        )
    if len(stripped) > _LONGEST or any(map(_NO_NAME.search, (name, kind or "", owner))):
        raise ConfigError(
            f"{what} {shown(stripped)} is not understood",
            expected=f"{_FORM}, several of them with commas between",
            found=shown(stripped),
        )
    known = [row.name for row in kinds]
    if kind and not any(fnmatchcase(one, kind) for one in known):
        raise ConfigError(
            f"{what} {stripped!r}: unknown kind {kind!r}{did_you_mean(kind, known)}",
            expected=f"one of {', '.join(known)}",
            found=kind,
        )
    return Pattern(
        text=stripped.removeprefix("+").strip(),
        name=name,
        kind=kind,
        distribution=normalize(owner) if at else None,
        adds=adds,
    )


def parse_patterns(
    text: str, kinds: Sequence[Kind] = KINDS, *, what: str = "plugin pattern"
) -> tuple[Pattern, ...]:
    """Read a comma-separated list; empty items are ignored."""
    items = [item for item in text.split(",") if item.strip()]
    return tuple(parse_pattern(item, kinds, what=what) for item in items)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What the operator allows.

    allow: None leaves every kind its own policy.  Otherwise, if any entry lacks a `+` (or
    there is none), the entries are exhaustive over third parties; if all have one, they
    add to the policy.  deny: wins, over first-party plugins too.  strict: warnings about
    plugins are errors.
    """

    allow: tuple[Pattern, ...] | None = None
    deny: tuple[Pattern, ...] = ()
    strict: bool = False
    no_plugins: bool = False

    @classmethod
    def from_env(
        cls, env: Mapping[str, str], *, no_plugins: bool = False, kinds: Sequence[Kind] = KINDS
    ) -> Policy:
        """Read the three variables.  `no_plugins` admits the first party only."""

        def patterns(variable: str) -> tuple[Pattern, ...]:
            return parse_patterns(env.get(variable, ""), kinds, what=f"{variable}: pattern")

        deny = patterns(DENY_VARIABLE)
        for pattern in deny:
            if pattern.adds:
                raise ConfigError(
                    f"{DENY_VARIABLE}: pattern '+{pattern.text}' is not understood",
                    expected=f"{_FORM}; a + adds to {ALLOW_VARIABLE} alone",
                    found=f"+{pattern.text}",
                )
        allow = patterns(ALLOW_VARIABLE) if ALLOW_VARIABLE in env else None
        strict = env.get(STRICT_VARIABLE, "").strip().lower()
        if strict not in _TRUE | _FALSE:
            raise ConfigError(f"{STRICT_VARIABLE} must be 0 or 1", expected="0 or 1", found=strict)
        return cls(
            allow=() if no_plugins else allow,
            deny=deny,
            strict=strict in _TRUE,
            no_plugins=no_plugins,
        )

    def as_env(self) -> dict[str, str]:
        """The variables that `from_env` reads, for another process; without `no_plugins`."""
        lists = {ALLOW_VARIABLE: None if self.no_plugins else self.allow, DENY_VARIABLE: self.deny}
        env = {
            variable: ",".join(f"+{p.text}" if p.adds else p.text for p in patterns)
            for variable, patterns in lists.items()
            if patterns is not None
        }
        return {**env, STRICT_VARIABLE: "1" if self.strict else "0"}

    @property
    def exhaustive(self) -> bool:
        """Third parties outside of `allow` stay out, whatever their kind says."""
        return self.allow is not None and not (
            self.allow and all(pattern.adds for pattern in self.allow)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the policy says of one plugin.

    named_by: the most precise entry of the allow list that covers it.  until_named: it is
    denied, and choosing it by name in the configuration would admit it.
    """

    admitted: bool
    reason: str = ""
    named_by: Pattern | None = None
    until_named: bool = False


def judge(
    policy: Policy, kind: Kind, name: str, distribution: str | None, *, first_party: bool
) -> Verdict:
    """Admit or deny one plugin.  Order: deny list, first party, allow list, kind."""
    covering = [p for p in policy.allow or () if p.matches(kind.name, name, distribution)]
    named = max(covering, key=lambda p: (p.pins, p.exact), default=None)
    for pattern in policy.deny:
        if pattern.matches(kind.name, name, distribution):
            return Verdict(
                admitted=False, reason=f"{DENY_VARIABLE} has {pattern.text!r}", named_by=named
            )
    if first_party or named:
        return Verdict(admitted=True, named_by=named)
    if policy.exhaustive:
        reason = (
            f"{NO_PLUGINS} admits the first party only"
            if policy.no_plugins
            else f"{ALLOW_VARIABLE} does not list it"
        )
        return Verdict(admitted=False, reason=reason)
    if kind.third_party is ThirdParty.DENIED:
        return Verdict(
            admitted=False,
            until_named=True,
            reason=f"third parties of this kind are denied until named; "
            f"set {ALLOW_VARIABLE}=+{kind.name}:{name}",
        )
    return Verdict(admitted=True)


def unmatched(
    patterns: Iterable[Pattern], plugins: Iterable[tuple[str, str, str | None]]
) -> list[Pattern]:
    """Entries that cover none of the plugins, each (kind, name, distribution)."""
    rows = list(plugins)
    return [p for p in patterns if not any(p.matches(*row) for row in rows)]


@functools.lru_cache(maxsize=8)  # asked again for each registry of a process
def first_party(requires: tuple[str, ...]) -> frozenset[str]:
    """Distributions of the `first-party` extra in the core's Requires-Dist lines."""
    from packaging.requirements import Requirement

    names = set()
    for line in requires:
        requirement = Requirement(line)
        marker = requirement.marker
        if (
            marker
            and marker.evaluate({"extra": FIRST_PARTY_EXTRA})
            and not marker.evaluate({"extra": ""})
        ):
            names.add(normalize(requirement.name))
    return frozenset(names)
