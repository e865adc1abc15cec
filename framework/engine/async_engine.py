"""`AsyncEngine`: many callers on one event loop; the core runs in a process of its own."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from framework.contracts.messages import EngineStats
from framework.contracts.pooling import PoolingParams
from framework.contracts.sampling import SamplingParams
from framework.engine.administration import Administered
from framework.engine.defaults import default_sampling
from framework.engine.front_end import FrontEnd, build_front_end
from framework.engine.io import CHAT, EMBEDDING
from framework.engine.keeper import CoreKeeper
from framework.engine.llm_options import LLMOptions, resolve_options
from framework.engine.prepared import kept
from framework.engine.prompts import one_prompt
from framework.engine.request_options import RequestOptions
from framework.errors import EngineDeadError

if TYPE_CHECKING:
    from framework.config.resolve import Resolved
    from framework.config.sections import EngineConfig
    from framework.contracts.io_processor import Params
    from framework.contracts.reasoning_parser import ReasoningParser
    from framework.contracts.stat_logger import Snapshot
    from framework.contracts.tokenizer import Tokenizer
    from framework.contracts.tool_parser import ToolParser
    from framework.engine.adapters import AdapterDirectory
    from framework.engine.in_flight import InFlight
    from framework.engine.outputs import EmbeddingOutput, RequestOutput
    from framework.engine.prepared import PreparedRequest
    from framework.engine.remote.messages import Started
    from framework.plugins.registry import PluginRegistry

log = logging.getLogger("framework")
T = TypeVar("T")


class AsyncEngine(Administered):
    """Loads a model and serves many callers of one event loop.

        async with AsyncEngine("demo") as engine:
            async for output in engine.generate("Hello", SamplingParams()):
                ...

    model, options: as for `LLM`.  in_process: the core runs in a thread of this process, for
    debugging.  All methods are for the loop on which it was started.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        in_process: bool = False,
        **options: Unpack[LLMOptions],
    ) -> None:
        self._init(resolve_options(model, dict(options)), in_process)

    @classmethod
    def from_config(cls, resolved: Resolved, *, in_process: bool = False) -> AsyncEngine:
        """From a configuration that `framework.config.resolve.resolve` has put together."""
        engine = cls.__new__(cls)
        engine._init(resolved, in_process)
        return engine

    def _init(self, resolved: Resolved, in_process: bool) -> None:
        self._resolved = resolved
        self.notes: tuple[str, ...] = ()
        self._in_process = in_process
        self._front: FrontEnd | None = None
        self._keeper: CoreKeeper | None = None
        self._stopped = False

    async def start(self) -> None:
        """Load the model and start the core.

        Raises ConfigError, PluginError, ModelError or UnsupportedError, as `LLM` does; then
        nothing is left running.
        """
        front = await asyncio.to_thread(build_front_end, self._resolved, self._in_process)
        try:
            keeper = CoreKeeper(front, self._in_process)
            started = await keeper.start()
        except BaseException:
            await asyncio.to_thread(front.events.leave)
            front.close()
            raise
        self._ready(front, keeper, started)
        try:
            await self._load_given()
        except BaseException:
            await self.shutdown()
            raise

    def _ready(self, front: FrontEnd, keeper: CoreKeeper, started: Started) -> None:
        self._front, self._keeper = front, keeper
        self.notes = (*front.notes, *started.notes)
        for note in self.notes:
            log.info("%s", note)
        front.events.started(self.notes)

    async def generate(
        self,
        prompt: object,
        sampling_params: SamplingParams | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Outputs of one prompt as they come, as `sampling_params.output_kind` says.

        Closing the iterator, or cancelling whoever waits for it, ends the request.  Raises
        InputError, UnsupportedError or OverloadedError before the first output, and
        EngineDeadError whenever the engine stops: EngineRestartingError where its core died
        and is being started anew.
        """
        request = await self._prepare(prompt, sampling_params, options)
        with kept([request]):
            stream = await (flight := self._alive()).add(request)
            try:
                finished = False
                while not finished:
                    output = await stream.take()
                    finished = output.finished
                    yield output
            finally:
                flight.drop(request.request_id)

    async def _prepare(
        self,
        prompt: object,
        sampling_params: SamplingParams | None,
        options: RequestOptions | None,
    ) -> PreparedRequest:
        """Tokenized in a thread of its own; a long prompt stops nobody."""
        self._alive()
        front = self._front_end
        sampling = sampling_params if sampling_params is not None else self.default_sampling()
        return await front.prepare(prompt, sampling, options or RequestOptions())

    def abort(self, request_id: str) -> bool:
        """End all requests of this client id; those who wait for them get a last output with
        finish_reason "abort".  False if there is none."""
        return self._alive().abort(request_id)

    async def render_chat(
        self, messages: Sequence[Mapping[str, Any]], *, limited: bool = True, **options: Any
    ) -> dict[str, Any]:
        """A conversation as a prompt; as `LLM.render_chat`.  Raises InputError."""
        self._alive()
        request = {"messages": messages, **options}
        apart = options.get("chat_template") is not None
        reading = await self._front_end.read(
            CHAT, request, SamplingParams(), limited=limited, apart=apart
        )
        return reading.prompts[0].as_mapping()

    async def ask(
        self,
        name: str,
        request: object,
        params: Params | None = None,
        options: RequestOptions | None = None,
    ) -> Any:
        """What the IO processor `name` answers to a request; see `LLM.ask`.  Cancelling whoever
        waits ends all that runs of it.  Raises as `generate` does."""
        self._alive()
        front = self._front_end
        if params is None:
            params = PoolingParams() if front.task(name) == "embed" else self.default_sampling()
        reading, requests = await front.ask(name, request, params, options or RequestOptions())
        with kept(requests):
            outputs = await self._alive().finals(requests)
        return await front.answer(name, request, reading, outputs)

    async def encode(
        self,
        prompt: object,
        pooling_params: PoolingParams | None = None,
        options: RequestOptions | None = None,
    ) -> EmbeddingOutput:
        """The vector of one prompt; see `LLM.embed`."""
        one = one_prompt(prompt)
        found: list[EmbeddingOutput] = await self.ask(EMBEDDING, one, pooling_params, options)
        return found[0]

    async def with_tokenizer(self, work: Callable[[Tokenizer], T]) -> T:
        """Let `work` use a tokenizer, in a thread."""
        return await self._front_end.with_tokenizer(work)

    @property
    def registry(self) -> PluginRegistry:
        """All plugins of this process."""
        return self._front_end.registry

    @property
    def tool_parser(self) -> ToolParser | None:
        """Finds calls of tools in answers, if the operator chose one."""
        return self._front_end.tool_parser

    @property
    def reasoning_parser(self) -> ReasoningParser | None:
        """Tells reasoning from answers, if the operator chose one."""
        return self._front_end.reasoning_parser

    @property
    def max_model_len(self) -> int:
        """Most tokens of a sequence, prompt and output together."""
        return self._front_end.max_model_len

    @property
    def model_names(self) -> tuple[str, ...]:
        """What clients may call the model."""
        return self.config.model.served_model_names or (self.config.model.model,)

    @property
    def class_labels(self) -> tuple[str, ...]:
        """Names of the classes that the model tells prompts apart by; () of one that does not."""
        return self._front_end.able.class_labels

    @property
    def directory(self) -> AdapterDirectory:
        """Adapters by name."""
        return self._front_end.adapters

    @property
    def last_stats(self) -> EngineStats:
        """Those of the last step that was heard of."""
        return EngineStats() if self._keeper is None else self._keeper.flight.stats

    @property
    def config(self) -> EngineConfig:
        """What the engine runs with, proposals of plugins included."""
        return self._resolved.config if self._front is None else self._front.config

    @property
    def core_pid(self) -> int | None:
        """Process of the core; None while it runs in this one."""
        return None if self._keeper is None else self._keeper.flight.core.pid

    def snapshot(self) -> Snapshot:
        """Statistics of the engine now; from any thread."""
        return self._front_end.events.snapshot()

    def default_sampling(self) -> SamplingParams:
        """What the model's generation configuration recommends.  Raises UnsupportedError for a
        model that generates nothing."""
        self._front_end.able.check_generating()
        return default_sampling(self._front_end.files.model.generation_config)

    def check_health(self) -> None:
        """Raises EngineRestartingError while the core is started anew after a death, and
        EngineDeadError if nothing can be served any more."""
        self._alive()
        if self._keeper is not None:
            self._keeper.check()

    async def shutdown(self, *, drain: bool = False) -> None:
        """End the engine.  drain: requests that were accepted are served first, new ones are
        refused; otherwise they end with EngineDeadError.  May be called twice."""
        first, self._stopped = not self._stopped, True
        if self._keeper is None:
            return
        await self._keeper.stop(drain=drain)
        if first:
            self._front_end.close()
            self._front_end.events.closed()
            await asyncio.to_thread(self._front_end.events.leave)

    async def __aenter__(self) -> AsyncEngine:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.shutdown()

    @property
    def _front_end(self) -> FrontEnd:
        if self._front is None:
            raise EngineDeadError("the engine was not started", mend="await engine.start()")
        return self._front

    def _alive(self) -> InFlight:
        if self._stopped:
            raise EngineDeadError("the engine is closed", mend="make a new one")
        if self._keeper is None:
            raise EngineDeadError("the engine was not started", mend="await engine.start()")
        return self._keeper.alive()

    async def _call(self, method: str, **arguments: Any) -> Any:
        return await self._alive().core.call(method, **arguments)
