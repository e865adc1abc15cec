"""What a suite is run on: an installed plugin, or a class of this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from framework.contracts.base import Contract
from framework.errors import ConfigError, PluginError
from framework.plugins.kinds import Kind
from framework.plugins.lookup import claims, unknown
from framework.plugins.policy import Policy, parse_pattern
from framework.plugins.records import Record
from framework.plugins.registry import PluginRegistry
from framework.testing.conformance import patches
from framework.testing.conformance.probe import Probe


@dataclass(slots=True, kw_only=True)
class Target:
    """record: of the plugin.  installed: it came with a distribution, so that there are
    metadata to look at.  same_name: all records of its kind and name.  options: {key: value}.
    probe: what its import did, once it was tried.  memo: what a suite found out and its clauses
    share.  library: the standard library as it was before."""

    kind: Kind
    record: Record
    registry: PluginRegistry
    installed: bool
    same_name: tuple[Record, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    probe: Probe | None = None
    memo: dict[str, Any] = field(default_factory=dict)
    library: patches.Names = field(default_factory=patches.of_library, repr=False)

    @property
    def importable(self) -> bool:
        """Another process can import it: it is no class of a function or of a script."""
        module, _, name = self.record.value.partition(":")
        return self.installed or ("<" not in name and module != "__main__")

    @property
    def key(self) -> str:
        """kind:name@distribution."""
        return self.record.key

    def load(self) -> type[Contract]:
        """The class; PluginError."""
        return self.registry.load_record(self.record)

    def make(self) -> Contract:
        """A new instance with the options; PluginError."""
        return self.registry.create_record(self.record, self.options)


def target_of(
    plugin: str | type[Contract],
    *,
    kind: str | None = None,
    options: Mapping[str, Any] | None = None,
    ad_hoc: Mapping[str, str] | None = None,
) -> Target:
    """The target that "kind:name", "kind:name@distribution" or a class means.

    kind: for a plugin written without one.  ad_hoc: {"kind:name": "module:attr"}.

    The plugin is admitted whatever the lists of the environment say: the author named it.
    Raises PluginError for an unknown name and for two plugins of the same name and
    distribution, ConfigError for a name without a kind.
    """
    given = dict(options or {})
    if not isinstance(plugin, str):
        return _of_class(plugin, given)
    head, colon, name = plugin.partition(":")
    if not colon:
        head, name = kind or "", plugin
    if not head:
        raise ConfigError(f"{plugin!r} does not say its kind", expected="KIND:NAME", found=plugin)
    base = name.partition("@")[0]
    policy = Policy(allow=(parse_pattern(f"+{head}:{name}"),))
    registry = PluginRegistry(policy=policy, ad_hoc=ad_hoc)
    row = registry.kind(head)
    records = registry.records(row.name)
    found = claims(records, name)
    if not found:
        raise unknown(name, row.name, records, registry.first_party)
    if len(found) > 1:
        owners = " or ".join(f"{head}:{r.name}@{r.owner}" for r in found)
        raise PluginError(
            f"{plugin!r} means {len(found)} plugins", plugin=plugin, mend=f"say {owners}"
        )
    return Target(
        kind=row,
        record=found[0],
        registry=registry,
        installed=found[0].distribution is not None,
        same_name=tuple(claims(records, base)),
        options=given,
    )


def full_name(plugin: str, ad_hoc: Mapping[str, str] | None = None) -> str:
    """ "kind:name" of what is written with or without a kind.

    Raises PluginError for an unknown name, ConfigError for one that several kinds have.
    """
    if ":" in plugin:
        return plugin
    registry = PluginRegistry(policy=Policy(), ad_hoc=ad_hoc)
    found = claims(registry.records(), plugin)
    kinds = sorted({record.kind for record in found})
    if not kinds:
        raise unknown(plugin, None, registry.records(), registry.first_party)
    if len(kinds) > 1:
        names = [f"{kind}:{plugin}" for kind in kinds]
        raise ConfigError(
            f"several kinds have a plugin {plugin!r}", expected=" or ".join(names), found=plugin
        )
    return f"{kinds[0]}:{plugin}"


def _of_class(cls: type[Contract], options: Mapping[str, Any]) -> Target:
    registry = PluginRegistry(policy=Policy())
    kind = registry.kind(str(getattr(cls, "kind", "of a class without a kind")))
    handle = registry.register(kind.name, cls.__name__, cls, "this-process")
    return Target(
        kind=kind,
        record=handle.record,
        registry=registry,
        installed=False,
        same_name=(handle.record,),
        options=options,
    )
