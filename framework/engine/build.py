"""Puts an engine together: plugins, model, tokenizer, runner, core, front end."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from framework.engine.ability import Ability
from framework.engine.adapters import AdapterDirectory
from framework.engine.client import InProcessClient
from framework.engine.ends import end_of_sequence_ids
from framework.engine.inputs import InputProcessor
from framework.engine.interrupt import kept_interrupt
from framework.engine.meaning import core_config, runner_context
from framework.engine.model_files import (
    Files,
    find_all,
    guarded,
    read_tokenizer,
)
from framework.engine.participants import (
    front_halves,
    runner_control,
    start_participants,
)
from framework.engine.plugged import Plugged, plug
from framework.engine.refusals import (
    refuse_inert,
    refuse_no_folder,
    refuse_silent,
    refuse_unadapted,
    refuse_uncompiled,
    refuse_unkept,
    refuse_unquantized,
)
from framework.engine.remote.messages import Started
from framework.plugins.lookup import kept_out

if TYPE_CHECKING:
    from framework.config.resolve import Resolved
    from framework.config.sections import EngineConfig
    from framework.contracts.executor import Executor
    from framework.contracts.kv_cache_spec import CacheManagerType
    from framework.contracts.model_source import ModelFiles
    from framework.contracts.participant import SchedulerParticipant
    from framework.contracts.scheduling_policy import SchedulingPolicy
    from framework.contracts.step import RunnerInfo
    from framework.contracts.tokenizer import Tokenizer
    from framework.core.engine_core import EngineCore
    from framework.plugins.registry import PluginRegistry

log = logging.getLogger("framework")


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


def build_engine(resolved: Resolved) -> Engine:
    """Everything from plugins to a bound cache.  On an error nothing is left running."""
    refuse_no_folder()
    with ExitStack() as undo:
        with _phase("plugins"):
            made = plug(resolved)
        config, registry = made.resolved.config, made.registry
        with _phase("model files"):
            files = find_all(registry, config)
        with _phase("tokenizer"):
            tokenizer = read_tokenizer(registry, files.tokenizer)
        early = (*made.notes, *registry.notes)
        core, notes = build_core(config, registry, files, tuple(made.processors), made.participants)
        undo.callback(core.close)
        inputs = _inputs(made, files, tokenizer, core)
        undo.callback(made.events.leave)
        made.events.prepare(cache_facts(core))
        client = InProcessClient(core, tokenizer, made.events)
        undo.pop_all()
    notes = (*early, *notes)
    for note in notes:
        log.info("%s", note)
    client.started(notes)
    return Engine(
        config=config,
        provenance=made.resolved.provenance,
        registry=registry,
        model=files.model,
        tokenizer=tokenizer,
        inputs=inputs,
        adapters=made.adapters,
        client=client,
        notes=notes,
    )


def _inputs(made: Plugged, files: Files, tokenizer: Tokenizer, core: EngineCore) -> InputProcessor:
    config, model = made.resolved.config, files.model
    return InputProcessor(
        tokenizer,
        vocab_size=core.vocab_size,
        max_model_len=core.max_model_len,
        io_processors=made.io_processors,
        chat_template=made.template,
        eos_ids=end_of_sequence_ids(
            tokenizer, model.generation_config, model.config, core.vocab_size
        ),
        seed=config.model.seed,
        logits_processors=made.processors,
        participants=made.participants,
        readers=front_halves(made.participants, made.registry, config, files),
        adapters=made.adapters,
        able=Ability(
            generates=core.info.generates,
            embedding_size=core.info.embedding_size,
            class_labels=core.info.class_labels,
            prompt_embeds=core.info.prompt_embeds,
        ),
    )


def build_core(
    config: EngineConfig,
    registry: PluginRegistry,
    files: Files,
    logits_processors: tuple[str, ...],
    participants: Mapping[str, SchedulerParticipant],
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
            context = runner_context(config, registry, files, logits_processors)
            with guarded(record, f"loading model {files.model.name!r}"):
                info = executor.load(context)
            refuse_inert(logits_processors, info, record.key)
            refuse_silent(context.proposer, info, record.key)
            refuse_unquantized(context.quantization, info, record.key)
            refuse_unkept(context.cache_dtype, info, record.key)
            refuse_uncompiled(context.compiler, info, record.key)
            refuse_unadapted(context.adapters, info, record.key)
        with _phase("engine core"), guarded(record, "making the cache"):
            core = _core(config, registry, executor, info, files.model, policy, participants)
        undo.callback(core.close)
        control = runner_control(executor, info)
        start_participants(participants.values(), registry, config, files, core.vocab_size, control)
        undo.pop_all()
    registry.log_states()
    return core, (*registry.notes[told:], *info.notes, f"max_model_len {core.max_model_len}")


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
        prompt_embeds=core.info.prompt_embeds,
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
