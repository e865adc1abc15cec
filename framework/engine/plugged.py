"""What an engine is made of before a model is looked for: the plugins of its configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from framework.config.choices import check_frozen, open_registry
from framework.engine.adapters import AdapterDirectory, directory_of
from framework.engine.events import Events, build_events
from framework.engine.io import IOProcessors, create_io_processors
from framework.engine.participants import create_participants
from framework.engine.refusals import refuse_unsupported
from framework.errors import PluginError
from framework.plugins.kinds import Scope

if TYPE_CHECKING:
    from framework.config.resolve import Resolved
    from framework.config.sections import EngineConfig
    from framework.contracts.logits_processor import LogitsProcessor
    from framework.contracts.participant import SchedulerParticipant
    from framework.plugins.registry import PluginRegistry

INSTALL = 'pip install "framework[default]"'
_NEEDED = ("model_source", "weight_loader", "tokenizer", "executor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugged:
    """notes: the start-up lines of what the machine proposes."""

    resolved: Resolved
    registry: PluginRegistry
    template: str | None
    events: Events
    processors: Mapping[str, LogitsProcessor]
    io_processors: IOProcessors
    participants: Mapping[str, SchedulerParticipant]
    adapters: AdapterDirectory
    notes: tuple[str, ...]


def plug(given: Resolved) -> Plugged:
    """The plugins of a configuration; of those that come with the core only the names are looked
    at.  Raises PluginError and ConfigError."""
    # It needs pydantic, which `from framework import LLM` does not.
    from framework.config.proposals import propose

    registry = build_registry(given.config)
    resolved, proposed = propose(given, registry)
    config = resolved.config
    refuse_unsupported(config)
    participants = create_participants(registry, config)
    made = Plugged(
        resolved=resolved,
        registry=registry,
        template=config.model.template_text(),
        events=build_events(config, registry),
        processors=create_processors(registry, config),
        io_processors=create_io_processors(registry, config),
        participants=participants,
        adapters=directory_of(config, participants),
        notes=proposed,
    )
    # Made with the core; a wrong name is told before a model is looked for.
    registry.find("scheduling_policy", config.scheduler.scheduling_policy, named=True)
    proposer = config.speculation.speculative_proposer
    if proposer is not None:
        registry.find("speculative_proposer", proposer, named=True)
    return made


def build_registry(config: EngineConfig, scopes: Iterable[Scope] = tuple(Scope)) -> PluginRegistry:
    """The plugins that this configuration may use, in a process of these scopes.

    Raises PluginError with the line to install when there is nothing that could run a model,
    and with the rows that differ from the lock where the configuration is frozen.
    """
    registry = open_registry(config, scopes=scopes)
    registry.check()
    missing = [kind for kind in _NEEDED if not registry.records(kind)]
    if missing:
        raise PluginError(
            "only the core is installed; it cannot run a model by itself",
            expected=f"plugins of the kinds {', '.join(_NEEDED)}",
            found=f"none of {', '.join(missing)}",
            mend=INSTALL,
        )
    check_frozen(config, registry)
    return registry


def create_processors(registry: PluginRegistry, config: EngineConfig) -> dict[str, LogitsProcessor]:
    """Instances of the active logits processors, by name."""
    made = registry.create_activated("logits_processor", config.plugin.logits_processors)
    return {record.name: cast("LogitsProcessor", instance) for record, instance in made}
