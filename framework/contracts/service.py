"""What front ends and endpoints see of a running engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from framework.contracts.base import handed

if TYPE_CHECKING:
    from framework.contracts.io_processor import Params
    from framework.contracts.messages import EngineStats
    from framework.contracts.reasoning_parser import ReasoningParser
    from framework.contracts.sampling import SamplingParams
    from framework.contracts.stat_logger import Snapshot
    from framework.contracts.tokenizer import Tokenizer
    from framework.contracts.tool_parser import ToolParser
    from framework.engine.adapters import LoadedAdapter
    from framework.engine.outputs import RequestOutput
    from framework.engine.request_options import RequestOptions
    from framework.plugins.registry import PluginRegistry

T = TypeVar("T")


@handed
class Administration(Protocol):
    """What only an operator may do; whoever offers it to others asks for a key of its own."""

    async def pause(self) -> None:
        """Compute nothing more until `resume`; no token is lost."""
        ...

    async def resume(self) -> None:
        """Go on where `pause` stopped."""
        ...

    async def sleep(self, level: int = 1) -> None:
        """Give back the memory of the cache, with level 2 that of the weights too; requests wait.
        Raises InputError, UnsupportedError, OverloadedError."""
        ...

    async def wake_up(self) -> None:
        """Take the memory again."""
        ...

    async def is_sleeping(self) -> bool:
        """Whether `wake_up` is due."""
        ...

    async def reset_prefix_cache(self) -> bool:
        """Forget all cached prefixes; False if that was not possible."""
        ...

    async def start_profile(self) -> None:
        """Trace all steps from now on.  Raises UnsupportedError, InputError."""
        ...

    async def stop_profile(self) -> Mapping[str, Any]:
        """End the trace; what there is to tell of it, such as "trace": a file of the engine's
        machine.  Raises InputError."""
        ...

    async def load_adapter(
        self, name: str, path: str, *, pinned: bool = False, load_inplace: bool = False
    ) -> None:
        """Load a LoRA adapter from a folder of the engine's machine, so that requests may name it.
        Raises InputError for one that cannot be used, UnsupportedError where none are served."""
        ...

    async def unload_adapter(self, name: str) -> None:
        """Requests may name it no more.  Raises InputError for a name that is not loaded."""
        ...

    async def pin_adapter(self, name: str, pinned: bool = True) -> None:
        """Whether it stays in memory while others make place.  Raises InputError."""
        ...

    def settings(self) -> Mapping[str, Any]:
        """Every value of the configuration by "section.field", secrets hidden."""
        ...


@handed
class Service(Protocol):
    """One engine, for one event loop.

    model_names: what clients may call the model, the first is its own.  adapters: those that
    `RequestOptions.adapter` may name.  max_model_len: most
    tokens of a sequence, prompt and output together.  last_stats: of the last step.
    tool_parser, reasoning_parser: those that the operator chose.  class_labels: names of the
    classes that the model tells prompts apart by, in their order; () of one that does not.
    """

    @property
    def model_names(self) -> tuple[str, ...]: ...
    @property
    def adapters(self) -> Sequence[LoadedAdapter]: ...
    @property
    def max_model_len(self) -> int: ...
    @property
    def class_labels(self) -> tuple[str, ...]: ...
    @property
    def last_stats(self) -> EngineStats: ...
    @property
    def tool_parser(self) -> ToolParser | None: ...
    @property
    def reasoning_parser(self) -> ReasoningParser | None: ...
    @property
    def registry(self) -> PluginRegistry: ...
    @property
    def administration(self) -> Administration: ...

    def generate(
        self,
        prompt: object,
        sampling_params: SamplingParams | None = None,
        options: RequestOptions | None = None,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Outputs of one prompt; closing the iterator ends the request.

        Raises InputError, UnsupportedError or OverloadedError before the first output,
        EngineDeadError whenever the engine stops.
        """
        ...

    async def render_chat(
        self, messages: Sequence[Mapping[str, Any]], **options: Any
    ) -> dict[str, Any]:
        """A conversation as a prompt for `generate`; options as for `LLM.render_chat`.  Raises
        InputError."""
        ...

    async def ask(
        self,
        name: str,
        request: object,
        params: Params | None = None,
        options: RequestOptions | None = None,
    ) -> Any:
        """What the IO processor `name` answers to a request.  Raises as `generate` does."""
        ...

    async def with_tokenizer(self, work: Callable[[Tokenizer], T]) -> T:
        """Let `work` use a tokenizer, in a thread."""
        ...

    def default_sampling(self) -> SamplingParams:
        """What the model recommends.  Raises UnsupportedError for one that generates nothing."""
        ...

    def snapshot(self) -> Snapshot:
        """The engine's statistics now; from any thread."""
        ...

    def abort(self, request_id: str) -> bool:
        """End all requests that the client calls so; False if there is none."""
        ...

    def check_health(self) -> None:
        """Raises EngineDeadError if nothing can be served any more."""
        ...
