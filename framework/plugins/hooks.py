"""Kind `hooks`: the hooks of the admitted plugins, in a pluggy manager."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from framework.errors import PluginError
from framework.plugins.breaker import Breaker
from framework.plugins.near import did_you_mean

if TYPE_CHECKING:
    import pluggy

    from framework.contracts.base import Contract
    from framework.plugins.records import Record
    from framework.plugins.registry import PluginRegistry


class Hooks:
    """The hooks of all activated plugins."""

    def __init__(self, manager: pluggy.PluginManager) -> None:
        self.manager = manager

    def caller(self, name: str) -> Callable[..., object] | None:
        """What calls the hook `name` of every plugin that has it, with keywords as specified;
        None when none has: then an event costs nothing."""
        caller: pluggy.HookCaller = getattr(self.manager.hook, name)
        return caller if caller.get_hookimpls() else None


def build_hooks(registry: PluginRegistry, error_limit: int | None = None) -> Hooks:
    """The hooks of the activated plugins, in their order.

    A hook that fails is logged under its plugin's name, and the others are called all the
    same; after `error_limit` errors in a row the plugin is off.  Raises PluginError for a plugin
    that fails (see `PluginRegistry.create_activated`), that implements an unknown hook, that
    forgot the `hookimpl` mark, or that wraps others.
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
            manager.register(
                _Guarded(Breaker(record, error_limit), instance, specs, manager), name=record.key
            )
        except pluggy.PluginValidationError as error:
            raise PluginError(
                f"hooks of plugin {record.key} do not fit: {error}",
                plugin=record.key,
                distribution=record.distribution,
                mend="give each hook the arguments of its specification, or fewer",
            ) from error
    return Hooks(manager)


def _check(
    record: Record, instance: Contract, specs: set[str], manager: pluggy.PluginManager
) -> None:
    """Unknown hooks would wait for ever, and unmarked ones would never be called."""
    for name in dir(instance):
        options = manager.parse_hookimpl_opts(instance, name)
        marked = options is not None
        if options is not None and (options.get("wrapper") or options.get("hookwrapper")):
            raise PluginError(
                f"plugin {record.key}: hook {name!r} wraps the hooks of other plugins",
                plugin=record.key,
                distribution=record.distribution,
                expected="hooks that stand alone",
                found="a wrapper",
                mend="mark it with a plain hookimpl; a failing wrapper would silence the others",
            )
        if options is not None and name not in specs and not options.get("optionalhook"):
            raise PluginError(
                f"plugin {record.key} implements unknown hook {name!r}{did_you_mean(name, specs)}",
                plugin=record.key,
                distribution=record.distribution,
                expected=f"some of {', '.join(sorted(specs))}",
                found=name,
                mend="correct the name; a hook that only another release of the core has is marked "
                "hookimpl(optionalhook=True)",
            )
        if name in specs and not marked and _overrides(instance, name, manager):
            raise PluginError(
                f"plugin {record.key}: hook {name!r} lacks the mark and would never be called",
                plugin=record.key,
                distribution=record.distribution,
                mend="decorate it with framework.contracts.hooks.hookimpl",
            )


class _Guarded:
    """The hooks of one plugin, with their marks.  pluggy stops at the first hook that raises;
    nobody else shall miss an event for it."""

    def __init__(
        self, breaker: Breaker, instance: Contract, specs: set[str], manager: pluggy.PluginManager
    ) -> None:
        for name in specs:
            if manager.parse_hookimpl_opts(instance, name) is not None:
                setattr(self, name, breaker.guarded(getattr(instance, name), f"hook {name!r}"))


def _overrides(instance: Contract, name: str, manager: pluggy.PluginManager) -> bool:
    return manager.parse_hookspec_opts(type(instance), name) is None
