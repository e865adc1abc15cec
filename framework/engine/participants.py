"""Scheduler participants and their two halves: what they are given, and when they begin."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from framework.config.choices import choices_of
from framework.contracts.participant import EngineContext, FrontHalf
from framework.engine.ends import end_of_sequence_ids
from framework.engine.meaning import adapter_limits
from framework.engine.model_files import read_tokenizer
from framework.errors import UnsupportedError
from framework.plugins.blame import blaming

if TYPE_CHECKING:
    from framework.config.sections import EngineConfig
    from framework.contracts.executor import Executor
    from framework.contracts.participant import SchedulerParticipant
    from framework.contracts.step import RunnerInfo
    from framework.contracts.tokenizer import Tokenizer
    from framework.engine.model_files import Files
    from framework.plugins.registry import PluginRegistry

RunnerControl = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]


def create_participants(
    registry: PluginRegistry, config: EngineConfig
) -> dict[str, SchedulerParticipant]:
    """Instances of the scheduler participants that are active in this process, by name."""
    made = registry.create_activated("scheduler_participant", config.plugin.scheduler_participants)
    return {record.name: cast("SchedulerParticipant", instance) for record, instance in made}


def start_participants(
    participants: Iterable[SchedulerParticipant],
    registry: PluginRegistry,
    config: EngineConfig,
    files: Files,
    vocab_size: int,
    control: RunnerControl,
) -> None:
    """Tell the halves in the engine core of their engine.  control: of the model runner.  Raises
    what they raise."""
    context = _context(registry, config, files, vocab_size, control)
    for participant in participants:
        with blaming(participant, "starting"):
            participant.start(context)


def front_halves(
    participants: Mapping[str, SchedulerParticipant],
    registry: PluginRegistry,
    config: EngineConfig,
    files: Files,
) -> dict[str, FrontHalf]:
    """The halves in the front end, by name.  Raises what they raise."""
    context = _context(registry, config, files)
    readers = {}
    for name, participant in participants.items():
        with blaming(participant, "making its half in the front end"):
            reader = participant.front_half(context)
        if reader is not None:
            readers[name] = reader
    return readers


def _context(
    registry: PluginRegistry,
    config: EngineConfig,
    files: Files,
    vocab_size: int = 0,
    control: RunnerControl | None = None,
) -> EngineContext:
    def load() -> tuple[Tokenizer, frozenset[int]]:
        tokenizer = read_tokenizer(registry, files.tokenizer)
        settings = files.model.generation_config, files.model.config
        return tokenizer, end_of_sequence_ids(tokenizer, *settings, vocab_size)

    return EngineContext(
        registry=registry,
        choices=choices_of(config),
        load_tokenizer=load,
        vocab_size=vocab_size,
        adapters=adapter_limits(config),
        control=control,
    )


def runner_control(executor: Executor, info: RunnerInfo) -> RunnerControl:
    """Operations of a loaded model runner, those that it declares."""

    def control(op: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        if op not in info.control_ops:
            raise UnsupportedError(
                f"the model runner has no operation {op!r}",
                expected=f"one of {', '.join(sorted(info.control_ops)) or 'none'}",
                found=op,
            )
        with blaming(executor, f"doing {op!r}"):
            return executor.control(op, arguments)

    return control
