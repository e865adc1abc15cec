"""`LLM`: a model in this process, for programs that wait for their answers."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from framework.contracts.pooling import PoolingParams
from framework.contracts.sampling import OutputKind, SamplingParams
from framework.engine.arguments import conversations, per_prompt
from framework.engine.build import build_engine
from framework.engine.defaults import default_sampling
from framework.engine.io import CHAT
from framework.engine.llm_options import LLMOptions, resolve_options
from framework.engine.llm_pooled import PooledLLM
from framework.engine.prepared import kept
from framework.engine.progress import run_all
from framework.engine.prompts import Prompt, split_prompts
from framework.engine.request_options import RequestOptions
from framework.errors import InputError

if TYPE_CHECKING:
    from framework.config.resolve import Resolved
    from framework.contracts.io_processor import Params, Task
    from framework.contracts.messages import EngineStats
    from framework.contracts.tokenizer import Tokenizer
    from framework.engine.outputs import RequestOutput
    from framework.engine.prepared import PreparedRequest

Message = Mapping[str, Any]


class LLM(PooledLLM):
    """Loads a model and generates text.

    model: an alias ("demo"), a folder or file on this machine, or a hub id.
    options: see LLMOptions; an unknown one is an error with near matches.  Options that are
    not given come from `FRAMEWORK_<SECTION>__<FIELD>` in the environment, else from their
    defaults; `provenance` tells which.

    Raises ConfigError, PluginError, ModelError or UnsupportedError.  Methods may be called
    from several threads; they take turns.  Use it as a context manager, or call `close`.
    """

    def __init__(self, model: str | os.PathLike[str], **options: Unpack[LLMOptions]) -> None:
        self._start(resolve_options(model, dict(options)))

    @classmethod
    def from_config(cls, resolved: Resolved) -> LLM:
        """From a configuration that `framework.config.resolve.resolve` has put together."""
        llm = cls.__new__(cls)
        llm._start(resolved)
        return llm

    def _start(self, resolved: Resolved) -> None:
        self._lock = threading.RLock()
        self._engine = build_engine(resolved)
        self.config = self._engine.config
        self.provenance = self._engine.provenance
        try:
            for name, path in self.config.adapters.lora_modules.items():
                self.load_adapter(name, path)
        except BaseException:
            self.close()
            raise

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        priority: int | Sequence[int] | None = None,
        use_tqdm: bool = True,
        lora_request: str | Sequence[str | None] | None = None,
    ) -> list[RequestOutput]:
        """One output per prompt, in the order of the prompts.

        sampling_params: one for all, one per prompt, or None for those that the model
        recommends; their output_kind is taken as FINAL_ONLY.  priority: lower first, one for
        all or one per prompt; heeded by the policy "priority".  use_tqdm: show progress on a
        terminal.  lora_request: the name of a loaded adapter, see `load_adapter`, one for all or
        one per prompt; None: the model as it is.

        An invalid prompt or parameter raises InputError (UnsupportedError for what this
        engine cannot do) before anything of this call runs.  A request that fails in the
        engine does not raise: its outputs have finish_reason "error" and the sentence in
        stop_reason; the others go on.  Ctrl-C ends the requests of this call.
        """
        items = split_prompts(prompts)
        with self._lock:
            requests = self._prepare(items, sampling_params, priority, lora_request)
            return run_all(self._engine.client, requests, show=use_tqdm)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        priority: int | Sequence[int] | None = None,
        use_tqdm: bool = True,
        lora_request: str | Sequence[str | None] | None = None,
    ) -> list[RequestOutput]:
        """Answer one conversation or several; see `generate` and `render_chat`."""
        with self._lock:
            self._engine.inputs.able.check_generating()
            found = conversations(messages)
            params = self._per_prompt(sampling_params, len(found))
            prompts = [
                self.render_chat(
                    conversation,
                    limited=getattr(one, "truncate_prompt_tokens", None) is None,
                    tools=tools,
                    documents=documents,
                    chat_template=chat_template,
                    chat_template_kwargs=chat_template_kwargs,
                    add_generation_prompt=add_generation_prompt,
                    continue_final_message=continue_final_message,
                )
                for conversation, one in zip(found, params, strict=True)
            ]
            requests = self._prepare(prompts, params, priority, lora_request)
            return run_all(self._engine.client, requests, show=use_tqdm)

    def stream(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        priority: int = 0,
        lora_request: str | None = None,
    ) -> Generator[RequestOutput, None, None]:
        """Outputs of one prompt as they come, each with what is new (OutputKind.DELTA).

        Validates at once, as `generate` does; runs as the iterator is advanced.  Closing the
        iterator ends the request.  Raises EngineDeadError if the engine stops.
        """
        with self._lock:
            self._engine.client.check()
            if sampling_params is None:
                sampling_params = self.get_default_sampling_params()
            options = RequestOptions(priority=priority, adapter=lora_request)
            request = self._prepare_one(prompt, sampling_params, options, OutputKind.DELTA)
        return self._stream(request)

    def render_chat(
        self, messages: Sequence[Message], *, limited: bool = True, **options: Any
    ) -> dict[str, Any]:
        """A conversation as a prompt: its token ids and, to show, its text.

        limited: refuse, before it is tokenized, a text that cannot fit the context; False for
        one that is to be cut.  options: tools, documents, chat_template (default: the one given to
        LLM, else the model's), chat_template_kwargs, add_generation_prompt,
        continue_final_message.  The IO processor "chat" does it.
        Raises InputError for a bad conversation, a template that fails, or a model without one.
        """
        with self._lock:
            request = {"messages": messages, **options}
            reader = self._engine.inputs.reader
            reading = reader.read(CHAT, request, SamplingParams(), limited=limited)
            return reading.prompts[0].as_mapping()

    def ask(
        self,
        name: str,
        request: object,
        params: Params | None = None,
        *,
        priority: int = 0,
        lora_request: str | None = None,
    ) -> Any:
        """What the IO processor `name` answers to a request; it says what a request is.  params:
        None: the usual ones of its task.  Raises as `generate` does."""
        with self._lock:
            inputs = self._engine.inputs
            options = RequestOptions(priority=priority, adapter=lora_request)
            if params is None:
                params = self._usual_params(inputs.reader.task(name))
            kind = OutputKind.FINAL_ONLY
            reading, requests = inputs.ask(name, request, params, options, kind=kind)
            outputs = run_all(self._engine.client, requests, show=False)
            return inputs.reader.answer(name, request, reading, outputs)

    def get_tokenizer(self) -> Tokenizer:
        """The tokenizer; its `unwrap()` is the library's own object."""
        return self._engine.tokenizer

    def get_default_sampling_params(self, **usual: Any) -> SamplingParams:
        """What the model's generation configuration recommends, `usual` for values of which it
        says nothing.  Raises ModelError if that is invalid."""
        return default_sampling(self._engine.model.generation_config, usual)

    @property
    def max_model_len(self) -> int:
        """Most tokens of a sequence, prompt and output together."""
        return self._engine.client.core.max_model_len

    @property
    def stats(self) -> EngineStats:
        """Running and waiting requests, pages, hits of the prefix cache, preemptions."""
        return self._engine.client.core.stats

    def check_integrity(self) -> None:
        """Raises IntegrityError if any count of the engine is wrong.  For tests."""
        with self._lock:
            self._engine.client.core.check_integrity()

    def close(self) -> None:
        """Give memory and devices back.  May be called twice; nothing works afterwards."""
        with self._lock:
            self._engine.client.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _usual_params(self, task: Task) -> Params:
        return PoolingParams() if task == "embed" else self.get_default_sampling_params()

    def _per_prompt(self, sampling_params: object, count: int) -> Sequence[Any]:
        if sampling_params is None:
            sampling_params = self.get_default_sampling_params()
        return per_prompt(sampling_params, count, "sampling_params")

    def _prepare(
        self,
        prompts: Sequence[object],
        sampling_params: object,
        priority: object,
        lora_request: object,
    ) -> list[PreparedRequest]:
        params = self._per_prompt(sampling_params, len(prompts))
        priorities = per_prompt(0 if priority is None else priority, len(prompts), "priority")
        adapters = per_prompt(lora_request, len(prompts), "lora_request")
        requests = []
        for number, prompt in enumerate(prompts):
            try:
                options = RequestOptions(priority=priorities[number], adapter=adapters[number])
                request = self._prepare_one(prompt, params[number], options, OutputKind.FINAL_ONLY)
            except InputError as error:
                if len(prompts) > 1:
                    raise error.within(f"prompt {number}") from None
                raise
            requests.append(request)
        return requests

    def _prepare_one(
        self, prompt: object, params: object, options: RequestOptions, kind: OutputKind
    ) -> PreparedRequest:
        if isinstance(params, SamplingParams) and params.output_kind is not kind:
            params = params.replace(output_kind=kind)
        return self._engine.inputs.process(prompt, params, options)

    def _stream(self, request: PreparedRequest) -> Generator[RequestOutput, None, None]:
        client = self._engine.client
        with kept([request]):
            try:
                with self._lock:
                    client.add([request])
                finished = False
                while not finished:
                    with self._lock:
                        output = client.wait(request.request_id)
                    finished = output.finished
                    yield output
            finally:
                with self._lock:
                    client.drop([request.request_id])
