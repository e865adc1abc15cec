"""The IO processors of an engine, with the tokenizer of one thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from framework.contracts.io_processor import EnginePrompt, Place, Reading
from framework.contracts.pooling import PoolingParams
from framework.contracts.sampling import SamplingParams
from framework.errors import InputError, PluginError
from framework.plugins.blame import blaming, expect, unfit
from framework.plugins.lookup import claims, denied, unusable
from framework.plugins.near import did_you_mean
from framework.plugins.records import Record, State
from framework.shown import shown

if TYPE_CHECKING:
    from framework.config.sections import EngineConfig
    from framework.contracts.io_processor import IOProcessor, Params, Task
    from framework.contracts.tokenizer import TextLimit, Tokenizer
    from framework.engine.outputs import RequestOutput
    from framework.plugins.registry import PluginRegistry

TEXT, CHAT, EMBEDDING = "text", "chat", "embedding"
"""Names under which the engine's own methods find their processors."""


class IOProcessors(dict[str, "IOProcessor"]):
    """Instances of the active IO processors, by name.  records: of all that are installed, so that
    one that is kept out is not told as one that nobody activated."""

    def __init__(self, active: Mapping[str, IOProcessor], records: Sequence[Record] = ()) -> None:
        super().__init__(active)
        self._records = records

    def __missing__(self, name: str) -> IOProcessor:
        """Raises PluginError that says why there is none of that name."""
        kept = [r for r in claims(self._records, name) if not (r.usable or r.until_named)]
        if kept:
            raise denied(kept) if kept[0].state is State.DENIED else unusable(kept[0])
        raise PluginError(
            f"no IO processor {shown(name)} is active{did_you_mean(name, self)}",
            plugin=f"io_processor:{name:.80}",
            expected=f"one of {', '.join(sorted(self)) or 'none'}",
            mend="activate it, for instance LLM(io_processors=[NAME])",
        )


def create_io_processors(registry: PluginRegistry, config: EngineConfig) -> IOProcessors:
    """Make those that the configuration activates."""
    made = registry.create_activated("io_processor", config.plugin.io_processors)
    return IOProcessors(
        {record.name: cast("IOProcessor", instance) for record, instance in made},
        registry.records("io_processor"),
    )


class RequestReader:
    """processors: by name, shared with other threads.  chat_template: the operator's, or None.
    limit: how much text can fit.  max_tokens: of a prompt, at most."""

    def __init__(
        self,
        processors: IOProcessors,
        tokenizer: Tokenizer,
        *,
        limit: TextLimit,
        max_tokens: int,
        chat_template: str | None = None,
    ) -> None:
        self._processors = processors
        self._tokenizer = tokenizer
        self._limit = limit
        self._max_tokens = max_tokens
        self._template = chat_template

    def task(self, name: str) -> Task:
        """What the processor asks of the engine, unless its readings say something else."""
        return find_processor(self._processors, name).task

    def read(
        self, name: str, request: object, params: Params, *, limited: bool | None = None
    ) -> Reading:
        """What the processor `name` makes of a request.

        limited: refuse, before it is tokenized, a text that cannot fit; None: unless `params`
        says that it will be cut.  Raises InputError for a bad request, PluginError for an unknown
        or a failing processor.
        """
        processor = find_processor(self._processors, name)
        if limited is None:
            limited = params.truncate_prompt_tokens is None
        place = Place(
            tokenizer=self._tokenizer,
            params=params,
            max_tokens=self._max_tokens,
            limit=self._limit if limited else None,
            chat_template=self._template,
        )
        with blaming(processor, "reading a request"):
            reading = expect(processor, "read", processor.read(request, place), Reading)
            flaw = _flaw(reading)
        if flaw is not None:
            raise unfit(processor, "read a request wrongly", "prompts of token ids", flaw)
        return reading

    def answer(
        self, name: str, request: object, reading: Reading, outputs: Sequence[RequestOutput]
    ) -> Any:
        """What the processor `name` answers to a request."""
        processor = find_processor(self._processors, name)
        with blaming(processor, "answering a request"):
            return processor.answer(request, reading, outputs)


def find_processor(processors: IOProcessors, name: object) -> IOProcessor:
    """The active processor of that name; PluginError for one that is not active, InputError for
    what is no name."""
    if not isinstance(name, str):
        raise InputError(
            "an IO processor is asked by its name",
            parameter="name",
            expected=f"one of {', '.join(sorted(processors)) or 'none'}",
            found=shown(name),
        )
    return processors[name]


def _flaw(reading: Reading) -> str | None:
    """What cannot be in a reading, or None."""
    if not isinstance(reading.prompts, tuple) or not reading.prompts:
        return f"prompts that are {type(reading.prompts).__name__}, or none"
    for prompt in reading.prompts:
        if not isinstance(prompt, EnginePrompt):
            return f"a prompt that is {type(prompt).__name__}"
        ids: object = prompt.ids
        if not isinstance(ids, list) or set(map(type, ids)) - {int} or min(ids, default=0) < 0:
            return "ids that are no list of integers >= 0"
        if any(not isinstance(text, str | None) for text in (prompt.text, prompt.salt)):
            return "a text or a salt that is no string"
        if prompt.embeds is not None and not _embeds(prompt.embeds, len(ids)):
            return f"embeddings that are not float32 [{len(ids)}, hidden size]"
    if not isinstance(reading.params, SamplingParams | PoolingParams | None):
        return f"params that are {type(reading.params).__name__}"
    return None


def _embeds(value: object, tokens: int) -> bool:
    if not isinstance(value, np.ndarray) or value.dtype != np.float32 or value.ndim != 2:
        return False
    return len(value) == tokens and bool(np.isfinite(value).all())
