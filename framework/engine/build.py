"""Puts an engine together: plugins, model, tokenizer, runner, core, front end."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from framework.config.choices import check_frozen, open_registry
from framework.engine.ability import Ability
from framework.engine.adapters import AdapterDirectory, directory_of
from framework.engine.client import InProcessClient
from framework.engine.ends import end_of_sequence_ids
from framework.engine.events import build_events
from framework.engine.inputs import InputProcessor
from framework.engine.interrupt import kept_interrupt
from framework.engine.io import create_io_processors
from framework.engine.meaning import core_config, runner_context
from framework.engine.model_files import (
    find_draft_model,
    find_model,
    guarded,
    load_tokenizer,
)
from framework.engine.participants import (
    create_participants,
    front_halves,
    runner_control,
    start_participants,
)
from framework.engine.refusals import (
    refuse_inert,
    refuse_no_folder,
    refuse_silent,
    refuse_unadapted,
    refuse_unquantized,
    refuse_unsupported,
)
from framework.engine.remote.messages import Started
from framework.errors import PluginError
from framework.plugins.kinds import Scope
from framework.plugins.lookup import kept_out

if TYPE_CHECKING:
    from framework.config.resolve import Resolved
    from framework.config.sections import EngineConfig
    from framework.contracts.executor import Executor
    from framework.contracts.kv_cache_spec import CacheManagerType
    from framework.contracts.logits_processor import LogitsProcessor
    from framework.contracts.model_source import ModelFiles
    from framework.contracts.participant import SchedulerParticipant
    from framework.contracts.scheduling_policy import SchedulingPolicy
    from framework.contracts.step import RunnerInfo
    from framework.contracts.tokenizer import Tokenizer
    from framework.core.engine_core import EngineCore
    from framework.plugins.registry import PluginRegistry

log = logging.getLogger("framework")

INSTALL = 'pip install "framework[default]"'
_NEEDED = ("model_source", "weight_loader", "tokenizer", "executor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The parts of a running engine.  provenance: where each value of the configuration comes
    from.  notes: the start-up lines."""

    config: EngineConfig
    provenance: Mapping[str, str]
    registry: PluginRegistry
    model: ModelFiles
    tokenizer: Tokenizer
    inputs: InputProcessor
    adapters: AdapterDirectory
    client: InProcessClient
    notes: tuple[str, ...]


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


def build_engine(resolved: Resolved) -> Engine:
    """Everything from plugins to a bound cache.  On an error nothing is left running."""
    # It needs pydantic, which `from framework import LLM` does not.
    from framework.config.proposals import propose

    refuse_no_folder()
    with ExitStack() as undo:
        with _phase("plugins"):
            registry = build_registry(resolved.config)
            resolved, proposed = propose(resolved, registry)
            config = resolved.config
            refuse_unsupported(config)
            template = config.model.template_text()
            events = build_events(config, registry)
            processors = create_processors(registry, config)
            io_processors = create_io_processors(registry, config)
            participants = create_participants(registry, config)
            adapters = directory_of(config, participants)
            # Made with the core; a wrong name is told before a model is looked for.
            registry.find("scheduling_policy", config.scheduler.scheduling_policy, named=True)
            if config.speculation.speculative_proposer is not None:
                registry.find(
                    "speculative_proposer", config.speculation.speculative_proposer, named=True
                )
        with _phase("model files"):
            model = find_model(registry, config.model)
            draft_model = find_draft_model(registry, config)
        with _phase("tokenizer"):
            tokenizer = load_tokenizer(registry, config.model, model)
        early = (*proposed, *registry.notes)
        core, notes = build_core(
            config, registry, model, tuple(processors), participants, draft_model
        )
        undo.callback(core.close)
        inputs = InputProcessor(
            tokenizer,
            vocab_size=core.vocab_size,
            max_model_len=core.max_model_len,
            io_processors=io_processors,
            chat_template=template,
            eos_ids=end_of_sequence_ids(
                tokenizer, model.generation_config, model.config, core.vocab_size
            ),
            seed=config.model.seed,
            logits_processors=processors,
            participants=participants,
            readers=front_halves(participants, registry, config, model),
            adapters=adapters,
            able=Ability(
                generates=core.info.generates,
                embedding_size=core.info.embedding_size,
                class_labels=core.info.class_labels,
            ),
        )
        undo.callback(events.leave)
        events.prepare(cache_facts(core))
        client = InProcessClient(core, tokenizer, events)
        undo.pop_all()
    notes = (*early, *notes)
    for note in notes:
        log.info("%s", note)
    client.started(notes)
    return Engine(
        config=config,
        provenance=resolved.provenance,
        registry=registry,
        model=model,
        tokenizer=tokenizer,
        inputs=inputs,
        adapters=adapters,
        client=client,
        notes=notes,
    )


def build_core(
    config: EngineConfig,
    registry: PluginRegistry,
    model: ModelFiles,
    logits_processors: tuple[str, ...],
    participants: Mapping[str, SchedulerParticipant],
    draft_model: ModelFiles | None = None,
) -> tuple[EngineCore, tuple[str, ...]]:
    """A core with a loaded runner and a bound cache, and its start-up lines.

    On an error nothing is left running.  Raises UnsupportedError if the runner would not apply
    the logits processors.
    """
    told = len(registry.notes)
    with ExitStack() as undo:
        name = config.scheduler.scheduling_policy
        policy = cast("SchedulingPolicy", registry.create("scheduling_policy", name, named=True))
        with _phase("weights"):
            record = registry.find("executor", config.execution.executor, named=True)
            executor = cast("Executor", registry.create_record(record))
            undo.callback(executor.close)
            context = runner_context(config, registry, model, logits_processors, draft_model)
            with guarded(record, f"loading model {model.name!r}"):
                info = executor.load(context)
            refuse_inert(logits_processors, info, record.key)
            refuse_silent(context.proposer, info, record.key)
            refuse_unquantized(context.quantization, info, record.key)
            refuse_unadapted(context.adapters, info, record.key)
        with _phase("engine core"), guarded(record, "making the cache"):
            core = _core(config, registry, executor, info, model, policy, participants)
        undo.callback(core.close)
        control = runner_control(executor, info)
        start_participants(participants.values(), registry, config, model, core.vocab_size, control)
        undo.pop_all()
    registry.log_states()
    return core, (*registry.notes[told:], *info.notes, f"max_model_len {core.max_model_len}")


def create_processors(registry: PluginRegistry, config: EngineConfig) -> dict[str, LogitsProcessor]:
    """Instances of the active logits processors, by name."""
    made = registry.create_activated("logits_processor", config.plugin.logits_processors)
    return {record.name: cast("LogitsProcessor", instance) for record, instance in made}


def cache_facts(core: EngineCore) -> dict[str, str]:
    """What statistics tell of the cache."""
    plan = core.cache_plan
    return {
        "num_pages": str(plan.num_pages),
        "page_tokens": ",".join(str(group.page_tokens) for group in plan.groups),
        "page_bytes": str(plan.page_bytes),
    }


def started_of(core: EngineCore, notes: tuple[str, ...]) -> Started:
    """What a front end in another thread or process must know of a core."""
    return Started(
        max_model_len=core.max_model_len,
        vocab_size=core.vocab_size,
        generates=core.info.generates,
        embedding_size=core.info.embedding_size,
        class_labels=core.info.class_labels,
        notes=notes,
        cache=cache_facts(core),
    )


def _core(
    config: EngineConfig,
    registry: PluginRegistry,
    executor: Executor,
    info: RunnerInfo,
    model: ModelFiles,
    policy: SchedulingPolicy,
    participants: Mapping[str, SchedulerParticipant],
) -> EngineCore:
    from framework.core.engine_core import EngineCore
    from framework.core.kv.managers import manager_for

    settings = core_config(config, model, info.lookahead)
    managers = [cast("CacheManagerType", m) for _, m in registry.create_activated("kv_cache_spec")]
    kept = kept_out(registry.records("kv_cache_spec"))
    for spec in info.layers.values():
        manager_for(spec, managers, kept)
    return EngineCore(
        executor, info, settings, policy=policy, participants=participants, managers=managers
    )


@contextmanager
def _phase(name: str) -> Iterator[None]:
    """Log how long a phase of the start took.  Ctrl-C ends the phase, at the latest."""
    start = time.perf_counter()
    with kept_interrupt():
        yield
    log.info("%s ready in %.2f s", name, time.perf_counter() - start)
