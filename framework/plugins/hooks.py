"""Kind `hooks`: a pluggy manager with the admitted plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from framework.errors import PluginError
from framework.plugins.near import did_you_mean

if TYPE_CHECKING:
    import pluggy

    from framework.contracts.base import Contract
    from framework.plugins.records import Record
    from framework.plugins.registry import PluginRegistry


def build_hooks(registry: PluginRegistry) -> pluggy.PluginManager:
    """A manager whose hooks call the activated plugins in their order.

    Raises PluginError for a plugin that fails (see `PluginRegistry.create_activated`), that
    implements an unknown hook, or that forgot the `hookimpl` mark.
    """
    import pluggy

    from framework.contracts.hooks import PROJECT, HookSpecs

    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(HookSpecs)
    specs = {n for n in dir(HookSpecs) if manager.parse_hookspec_opts(HookSpecs, n) is not None}
    # pluggy calls what was registered last first.
    for record, instance in reversed(registry.create_activated("hooks")):
        _check(record, instance, specs, manager)
        try:
            manager.register(instance, name=record.key)
        except pluggy.PluginValidationError as error:
            raise PluginError(
                f"hooks of plugin {record.key} do not fit: {error}",
                plugin=record.key,
                distribution=record.distribution,
                mend="give each hook the arguments of its specification, or fewer",
            ) from error
    return manager


def _check(
    record: Record, instance: Contract, specs: set[str], manager: pluggy.PluginManager
) -> None:
    """Unknown hooks would wait for ever, and unmarked ones would never be called."""
    for name in dir(instance):
        marked = manager.parse_hookimpl_opts(instance, name) is not None
        if marked and name not in specs:
            raise PluginError(
                f"plugin {record.key} implements unknown hook {name!r}{did_you_mean(name, specs)}",
                plugin=record.key,
                distribution=record.distribution,
                expected=f"some of {', '.join(sorted(specs))}",
                found=name,
            )
        if name in specs and not marked and _overrides(instance, name, manager):
            raise PluginError(
                f"plugin {record.key}: hook {name!r} lacks the mark and would never be called",
                plugin=record.key,
                distribution=record.distribution,
                mend="decorate it with framework.contracts.hooks.hookimpl",
            )


def _overrides(instance: Contract, name: str, manager: pluggy.PluginManager) -> bool:
    return manager.parse_hookspec_opts(type(instance), name) is None
