"""The front end's parts, and its threads for what may take long: tokenizing, templates."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

from framework.config.proposals import propose
from framework.contracts.sampling import OutputKind
from framework.engine import recipe
from framework.engine.ability import GENERATES, Ability
from framework.engine.adapters import NO_ADAPTERS, AdapterDirectory, directory_of
from framework.engine.build import build_core, started_of
from framework.engine.ends import end_of_sequence_ids
from framework.engine.events import Events, build_events
from framework.engine.inputs import InputProcessor
from framework.engine.io import IOProcessors, create_io_processors, find_processor
from framework.engine.model_files import Files, find_all, read_tokenizer
from framework.engine.participants import create_participants, front_halves
from framework.engine.payloads import PayloadStore
from framework.engine.plugged import build_registry, create_processors
from framework.engine.refusals import refuse_no_folder, refuse_unsupported
from framework.engine.remote.links import ClientLink, QueueLink
from framework.engine.remote.messages import Started
from framework.engine.remote.process import CoreProcess, serve
from framework.plugins.blame import blaming
from framework.plugins.kinds import Scope

if TYPE_CHECKING:
    from framework.config.resolve import Resolved
    from framework.config.sections import EngineConfig
    from framework.contracts.base import Contract
    from framework.contracts.io_processor import Params, Reading, Task
    from framework.contracts.logits_processor import LogitsProcessor
    from framework.contracts.participant import FrontHalf, SchedulerParticipant
    from framework.contracts.reasoning_parser import ReasoningParser
    from framework.contracts.tokenizer import Tokenizer
    from framework.contracts.tool_parser import ToolParser
    from framework.engine.outputs import RequestOutput
    from framework.engine.prepared import PreparedRequest
    from framework.engine.remote.process import Built
    from framework.engine.request_options import RequestOptions
    from framework.plugins.registry import PluginRegistry

log = logging.getLogger("framework")
T = TypeVar("T")


@dataclass(kw_only=True)
class FrontEnd:
    """Everything of an engine but its core.

    provenance: where each value of the configuration comes from.  notes: start-up lines.
    halves: those of participants here, and what they read of requests (readers).  adapters: by
    name.
    tokenizer: for the event loop, which turns ids into text.  The threads have their own:
    tokenizers keep state while they work.  One more thread, which starts when it is needed, is for
    templates of clients: they may take long, and nobody else shall wait for them.
    """

    config: EngineConfig
    provenance: Mapping[str, str]
    notes: tuple[str, ...]
    registry: PluginRegistry
    events: Events
    files: Files
    tokenizer: Tokenizer
    processors: dict[str, LogitsProcessor]
    io_processors: IOProcessors
    chat_template: str | None
    participants: tuple[str, ...]
    halves: Mapping[str, SchedulerParticipant] = field(default_factory=dict)
    readers: Mapping[str, FrontHalf] = field(default_factory=dict)
    adapters: AdapterDirectory = NO_ADAPTERS
    tool_parser: ToolParser | None = None
    reasoning_parser: ReasoningParser | None = None
    able: Ability = GENERATES
    vocab_size: int = 0
    max_model_len: int = 0
    _own: threading.local = field(default_factory=threading.local)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _payloads: PayloadStore = field(default_factory=PayloadStore)
    _threads: ThreadPoolExecutor = field(init=False)
    _apart: ThreadPoolExecutor = field(init=False)

    def __post_init__(self) -> None:
        self._threads = self._pool(self.config.execution.tokenizer_threads, "framework-tokenizer")
        self._apart = self._pool(1, "framework-templates")
        # Loads while the core loads its weights.
        self._threads.submit(lambda: None)

    def _pool(self, size: int, name: str) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(size, thread_name_prefix=name, initializer=self._load_own)

    def _load_own(self) -> None:
        self._own.tokenizer = read_tokenizer(self.registry, self.files.tokenizer)
        with suppress(Exception):  # who needs it is told then
            self._own.tokenizer.unwrap()  # chats may; the first one shall not wait for an import
        self._own.inputs = self._own.made_for = None

    def link(self, in_process: bool) -> ClientLink:
        """Start the core, in a process or in a thread."""
        names = tuple(self.processors)
        if in_process:

            def build() -> Built:
                participants = create_participants(self.registry, self.config)
                core, notes = build_core(
                    self.config,
                    self.registry,
                    self.files,
                    names,
                    participants,
                )
                return core, started_of(core, notes)

            return QueueLink(lambda far: serve(far, build))
        return CoreProcess(
            recipe.BUILDER,
            recipe.write(self.config, self.registry, self.files, names),
            log_level=log.getEffectiveLevel(),
        )

    def started(self, core: Started) -> None:
        """The core is ready, and this is what it says; requests can be prepared from now on."""
        self.vocab_size, self.max_model_len = core.vocab_size, core.max_model_len
        self.able = Ability(
            generates=core.generates,
            embedding_size=core.embedding_size,
            class_labels=core.class_labels,
            prompt_embeds=core.prompt_embeds,
            max_logprobs=self.config.execution.max_logprobs,
        )

    async def prepare(
        self, prompt: object, sampling: object, options: RequestOptions
    ) -> PreparedRequest:
        """See InputProcessor.process; runs in one of the threads."""
        return await self._run(lambda: self._inputs().process(prompt, sampling, options))

    async def ask(
        self, name: str, request: object, params: Params, options: RequestOptions
    ) -> tuple[Reading, list[PreparedRequest]]:
        """See InputProcessor.ask; runs in one of the threads.  The outputs are final ones."""
        kind = OutputKind.FINAL_ONLY
        return await self._run(
            lambda: self._inputs().ask(name, request, params, options, kind=kind)
        )

    def task(self, name: str) -> Task:
        """What the IO processor `name` asks of the engine."""
        return find_processor(self.io_processors, name).task

    async def read(
        self,
        name: str,
        request: object,
        params: Params,
        *,
        limited: bool | None = None,
        apart: bool = False,
    ) -> Reading:
        """See RequestReader.read; runs in one of the threads.  apart: in the one for what may
        take long."""
        return await asyncio.get_running_loop().run_in_executor(
            self._apart if apart else self._threads,
            lambda: self._inputs().reader.read(name, request, params, limited=limited),
        )

    async def answer(
        self, name: str, request: object, reading: Reading, outputs: Sequence[RequestOutput]
    ) -> Any:
        """See RequestReader.answer; runs in one of the threads."""
        return await self._run(
            lambda: self._inputs().reader.answer(name, request, reading, outputs)
        )

    async def with_tokenizer(self, work: Callable[[Tokenizer], T]) -> T:
        """Let `work` use a tokenizer in one of the threads."""
        return await self._run(lambda: work(self._own.tokenizer))

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _inputs(self) -> InputProcessor:
        sizes = self.vocab_size, self.max_model_len
        if self._own.made_for != sizes:  # another core may have room for other lengths
            self._own.made_for = sizes
            tokenizer = self._own.tokenizer
            self._own.inputs = InputProcessor(
                tokenizer,
                vocab_size=self.vocab_size,
                max_model_len=self.max_model_len,
                io_processors=self.io_processors,
                chat_template=self.chat_template,
                eos_ids=end_of_sequence_ids(
                    tokenizer,
                    self.files.model.generation_config,
                    self.files.model.config,
                    self.vocab_size,
                ),
                seed=self.config.model.seed,
                logits_processors=self.processors,
                participants=self.participants,
                readers=self.readers,
                adapters=self.adapters,
                numbers=self._numbers,
                able=self.able,
                payloads=self._payloads,
            )
        inputs: InputProcessor = self._own.inputs
        return inputs

    def close(self) -> None:
        """End the threads; may be called twice."""
        for pool in (self._threads, self._apart):
            pool.shutdown(wait=False, cancel_futures=True)
        for half in self.halves.values():
            with blaming(half, "being closed"):
                half.close()


def _chosen(registry: PluginRegistry, kind: str, name: str | None) -> Contract | None:
    return None if name is None else registry.create(kind, name, named=True)


def build_front_end(resolved: Resolved, in_process: bool = False) -> FrontEnd:
    """Plugins, model files and tokenizer.  Raises what `LLM` raises.

    in_process: the core will run in this process; else only plugins of a front end are loaded.
    """
    refuse_no_folder()
    registry = build_registry(resolved.config, tuple(Scope) if in_process else (Scope.FRONT_END,))
    resolved, proposed = propose(resolved, registry)
    config = resolved.config
    refuse_unsupported(config)
    events = build_events(config, registry, count=True)
    processors = create_processors(registry, config)
    io_processors = create_io_processors(registry, config)
    plugin = config.plugin
    tools = _chosen(registry, "tool_parser", plugin.tool_parser)
    reasoning = _chosen(registry, "reasoning_parser", plugin.reasoning_parser)
    # What runs in the core; a wrong name is told before a model is looked for.
    names = registry.selectable("scheduler_participant", config.plugin.scheduler_participants)
    registry.selectable("scheduling_policy", [config.scheduler.scheduling_policy])
    registry.selectable("executor", [config.execution.executor])
    if config.speculation.speculative_proposer is not None:
        registry.selectable("speculative_proposer", [config.speculation.speculative_proposer])
    files = find_all(registry, config)
    tokenizer = read_tokenizer(registry, files.tokenizer)
    halves = create_participants(registry, config)
    readers = front_halves(halves, registry, config, files)
    registry.log_states()
    return FrontEnd(
        config=config,
        provenance=resolved.provenance,
        notes=(*proposed, *registry.notes),
        registry=registry,
        events=events,
        files=files,
        tokenizer=tokenizer,
        processors=processors,
        io_processors=io_processors,
        chat_template=config.model.template_text(),
        participants=tuple(record.name for record in names),
        halves=halves,
        readers=readers,
        adapters=directory_of(config, halves),
        tool_parser=cast("ToolParser | None", tools),
        reasoning_parser=cast("ReasoningParser | None", reasoning),
    )
