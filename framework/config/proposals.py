"""Values of the configuration that plugins propose in their manifests.

    [[plugin.config]]
    field = "enable_prefix_caching"
    value = false
    reason = "its pages cannot be shared"

A proposal counts where nobody else gave a value.  Those of a plugin that the configuration
names or that is activated are heeded; one that selection may still choose has no say, since
what is chosen may depend on the configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from framework.config.choices import choices_of, named_fields
from framework.config.layers import OWNER, Setting
from framework.config.sections import NOT_FOR_PLUGINS
from framework.errors import PluginError
from framework.plugins.kinds import Cardinality
from framework.plugins.near import did_you_mean
from framework.shown import in_a_line

if TYPE_CHECKING:
    from framework.config.resolve import Resolved
    from framework.plugins.records import Record
    from framework.plugins.registry import PluginRegistry


@dataclass(frozen=True, slots=True)
class Proposed:
    """One value, the plugin that proposes it, and why."""

    record: Record
    field: str
    value: object
    reason: str

    @property
    def source(self) -> str:
        """What the provenance shows."""
        return f"plugin {self.record.key}"

    @property
    def setting(self) -> Setting:
        """As a layer of the configuration."""
        return Setting(OWNER[self.field], self.field, self.value, self.source)

    @property
    def line(self) -> str:
        """What the start-up log says of it."""
        state = {True: "on", False: "off"}.get(self.value, self.value)  # type: ignore[call-overload]
        return in_a_line(f"{self.field} is {state} because of {self.source}: {self.reason}")


def propose(resolved: Resolved, registry: PluginRegistry) -> tuple[Resolved, tuple[str, ...]]:
    """The configuration with the proposals of its plugins, and a line of each that counts.

    Raises PluginError for a proposal that cannot be one and for two that contradict each other,
    ConfigError for a value that the field does not take.
    """
    proposed = _proposals(resolved, registry)
    changed = resolved.with_proposals(each.setting for each in proposed)
    lines = tuple(
        p.line for p in proposed if changed.provenance[f"{OWNER[p.field]}.{p.field}"] == p.source
    )
    return changed, lines


def check_proposals(record: Record) -> list[Proposed]:
    """What one plugin proposes.  Raises PluginError for a field that is not for it."""
    found = []
    for item in record.facts.config if record.facts else ():
        if item.field not in OWNER:
            raise _wrong(record, item.field, f"there is none{did_you_mean(item.field, OWNER)}")
        if item.field in NOT_FOR_PLUGINS or OWNER[item.field] == "plugin":
            raise _wrong(record, item.field, "it is the operator's alone")
        if item.field in named_fields():
            raise _wrong(record, item.field, "it chooses plugins")
        found.append(Proposed(record, item.field, item.value, item.reason))
    return found


def _wrong(record: Record, field: str, why: str) -> PluginError:
    return PluginError(
        f"plugin {record.key} proposes a value for the field {field!r}: {why}",
        plugin=record.key,
        distribution=record.distribution,
        expected="a field of the configuration that is open to plugins",
        found=field,
        mend=f"correct [[plugin.config]] in the manifest of {record.owner}, or upgrade it",
    )


def _proposals(resolved: Resolved, registry: PluginRegistry) -> list[Proposed]:
    choices = choices_of(resolved.config)
    found: dict[str, Proposed] = {}
    for kind in registry.kinds:
        names = choices.get(kind.name, ())
        if kind.contract is None or not (names or kind.cardinality is Cardinality.MANY):
            continue
        for record in registry.selectable(kind.name, names):
            for new in check_proposals(record):
                old = found.setdefault(new.field, new)
                given = resolved.provenance[f"{OWNER[new.field]}.{new.field}"] != "default"
                if old.value != new.value and not given:
                    raise _contradiction(old, new)
    return list(found.values())


def _contradiction(one: Proposed, other: Proposed) -> PluginError:
    return PluginError(
        f"plugins {one.record.key} and {other.record.key} propose different values for "
        f"{one.field!r}",
        plugin=one.record.key,
        distribution=one.record.distribution,
        expected="one value",
        found=f"{one.value!r} ({one.reason}) and {other.value!r} ({other.reason})",
        mend=f"give {one.field} yourself, or deny one of them with FRAMEWORK_PLUGINS_DENY",
    )
