"""From a process to its children: the same plugins, by the same rules, checked.

The parent packs a `Handover` and gives its bytes to the child with whatever starts that (an
argument of a spawned process, the first message of a socket).  The child's first act is
`take_over(payload)`: a registry for its scopes, under the parent's policy, with its ad-hoc
plugins and options, which has found the same distributions with the same files, or an error
that prints the rows that differ.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

import msgspec

from framework.errors import PluginError
from framework.plugins.kinds import KINDS, Kind, Scope
from framework.plugins.policy import Policy
from framework.plugins.registry import PluginRegistry
from framework.plugins.resolved import Choices, ResolvedSet, check_equal, resolve_plugins


class Handover(msgspec.Struct, frozen=True, kw_only=True):
    """What travels.  variables: the policy as FRAMEWORK_PLUGINS variables.  path: the parent's
    sys.path.  options: with their secrets, which therefore stay out of the repr."""

    scopes: tuple[str, ...]
    variables: dict[str, str]
    no_plugins: bool
    ad_hoc: dict[str, str]
    options: dict[str, dict[str, dict[str, Any]]]
    choices: dict[str, tuple[str, ...]]
    path: tuple[str, ...]
    slow_import: float
    expected: ResolvedSet

    def __repr__(self) -> str:
        return f"Handover({'+'.join(self.scopes)}, {len(self.expected.rows)} plugins)"


def hand_over(
    registry: PluginRegistry, scopes: Sequence[Scope], choices: Choices | None = None
) -> bytes:
    """What a child of these scopes needs in order to use the plugins of `registry`.

    choices: as for `resolve_plugins`.  The bytes hold options in clear: give them to the child
    and to nobody else.  Raises PluginError for a plugin that was registered in code and for an
    option that is no plain value, neither of which can reach another process.
    """
    expected = resolve_plugins(registry, choices).for_scopes(scopes)
    _refuse_registered(registry, expected)
    handover = Handover(
        scopes=tuple(scope.value for scope in scopes),
        variables=registry.policy.as_env(),
        no_plugins=registry.policy.no_plugins,
        ad_hoc=dict(registry.ad_hoc),
        options={
            kind: {name: dict(keys) for name, keys in plugins.items()}
            for kind, plugins in registry.options.items()
        },
        choices={kind: tuple(names) for kind, names in (choices or {}).items()},
        path=tuple(sys.path),
        slow_import=registry.slow_import,
        expected=expected,
    )
    return msgspec.msgpack.encode(handover, enc_hook=_plain)


def take_over(
    payload: bytes,
    *,
    kinds: Sequence[Kind] = KINDS,
    search_path: Sequence[str] | None = None,
    first_party: frozenset[str] | None = None,
) -> PluginRegistry:
    """The registry of a child.  kinds, search_path, first_party: as for PluginRegistry.

    What the parent could import the child can: missing entries are added to the end of
    sys.path.  Raises PluginError with the rows that differ from the parent's.
    """
    handover = msgspec.msgpack.decode(payload, type=Handover)
    sys.path.extend(entry for entry in handover.path if entry not in sys.path)
    scopes = [Scope(scope) for scope in handover.scopes]
    registry = PluginRegistry(
        policy=Policy.from_env(handover.variables, no_plugins=handover.no_plugins, kinds=kinds),
        ad_hoc=handover.ad_hoc,
        options=handover.options,
        kinds=kinds,
        search_path=search_path,
        first_party=first_party,
        scopes=scopes,
        slow_import=handover.slow_import,
    )
    check_equal(
        resolve_plugins(registry, handover.choices).for_scopes(scopes),
        handover.expected,
        names=(f"this {'+'.join(handover.scopes)} process", "its parent"),
        mend="start both from one environment: the same Python, PYTHONPATH and distributions",
    )
    return registry


def _refuse_registered(registry: PluginRegistry, expected: ResolvedSet) -> None:
    keys = {row.key for row in expected.rows}
    for record in registry.records():
        if record.origin == "registered" and record.key in keys:
            raise PluginError(
                f"plugin {record.key} was registered in code and cannot reach a child process",
                plugin=record.key,
                distribution=record.distribution,
                expected="an installed plugin, or one by its dotted name",
                found=record.value,
                mend=f"give it as plugins={{'{record.kind}:{record.name}': '{record.value}'}}",
            )


def _plain(value: object) -> object:
    """Values of options that msgpack has not.  Raises PluginError; the value is not shown."""
    secret = getattr(value, "get_secret_value", None)
    if secret is not None:
        return secret()
    if isinstance(value, PurePath):
        return str(value)
    raise PluginError(
        "an option of a plugin cannot reach a child process",
        expected="text, numbers, lists and mappings",
        found=f"a {type(value).__name__}",
        mend="write it as text; the plugin's Options model converts it",
    )
