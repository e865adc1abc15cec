"""Kind `io_processor`: what a client asks as prompts of the engine, and outputs as its answer.

    request --read--> Reading(prompts, params) --engine--> outputs --answer--> answer

`LLM.ask(NAME, request)` and `AsyncEngine.ask(NAME, request)` go this way with any processor; the
engine's own methods with those called "text" (`generate`), "chat" (`chat`) and "embedding"
(`embed`, `encode`), so that a plugin which replaces one of them changes every way in.

One instance serves an engine.  A server calls it from several threads at a time, off its event
loop: whatever keeps state while it works, as tokenizers do, comes with the `Place` and belongs
to the thread.  It must not import torch.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from framework.contracts.base import Contract
from framework.contracts.pooling import PoolingParams
from framework.contracts.sampling import SamplingParams

if TYPE_CHECKING:
    from framework.contracts.step import F32
    from framework.contracts.tokenizer import TextLimit, Tokenizer
    from framework.engine.outputs import RequestOutput

Params = SamplingParams | PoolingParams
"""What is asked of the engine: tokens, or a vector."""

Task = Literal["generate", "embed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePrompt:
    """One prompt, tokenized; the engine looks whether the ids exist and fit.

    ids: at least one.  text: to show, or None.  salt: keeps the prefix cache apart.
    embeds: float32 [tokens, hidden size], in place of the model's embeddings of the ids, which
    are 0 then, one for each vector; or None.
    """

    ids: list[int]
    text: str | None = None
    salt: str | None = None
    embeds: F32 | None = None

    def as_mapping(self) -> dict[str, Any]:
        """In the form in which users write prompts."""
        salt = {} if self.salt is None else {"cache_salt": self.salt}
        if self.embeds is not None:
            return {"prompt": self.text, "prompt_embeds": self.embeds, **salt}
        return {"prompt": self.text, "prompt_token_ids": self.ids, **salt}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What was read of a request.

    prompts: at least one; each is run by itself.  params: of all of them; None: those that came
    with the request, or the usual ones.
    """

    prompts: tuple[EnginePrompt, ...]
    params: Params | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a processor may use while it reads; it belongs to the thread.

    params: that came with the request, or the usual ones.  limit: refuses, before it is
    tokenized, a text that cannot fit; None where any length is wanted, as it will be cut.
    max_tokens: of a prompt, at most.  chat_template: in place of the model's, or None.
    """

    tokenizer: Tokenizer
    params: Params
    max_tokens: int
    limit: TextLimit | None = None
    chat_template: str | None = None


class IOProcessor(Contract):
    """task: what the engine is asked for, where a `Reading` brings no parameters.
    examples: requests that it can read, for the conformance kit."""

    kind: ClassVar[str] = "io_processor"
    task: ClassVar[Task] = "generate"
    examples: ClassVar[Sequence[Any]] = ()

    @abstractmethod
    def read(self, request: Any, place: Place) -> Reading:
        """The prompts of a request, which is left as it is.

        Raises InputError, with the parameter, for whatever is wrong with it; the request may have
        come over a network and be anything.  Any other error counts as a fault of the plugin.
        """

    def answer(self, request: Any, reading: Reading, outputs: Sequence[RequestOutput]) -> Any:
        """The answer to a request.

        outputs: finished ones, one per prompt of `reading` and in their order.  One that failed
        has in the `error` of its `outputs` what to raise for it.
        By default the outputs themselves, or the only one.
        """
        return outputs[0] if len(outputs) == 1 else list(outputs)


def known_keys(request: object, keys: Mapping[str, object]) -> dict[str, Any]:
    """A request that is a mapping, completed by what `keys` holds for those that are not given.
    Raises InputError for anything else, and for a key that is not in `keys`."""
    from framework.errors import InputError
    from framework.plugins.near import did_you_mean
    from framework.shown import shown

    if not isinstance(request, Mapping):
        raise InputError(
            "the request is invalid",
            parameter="request",
            expected=f"a mapping with some of {', '.join(keys)}",
            found=f"{type(request).__name__} {shown(request):.80}",
        )
    for key in request:
        if key not in keys:
            raise InputError(
                f"the request has no {shown(key):.80}{did_you_mean(str(key), list(keys))}",
                parameter="request",
                expected=f"some of {', '.join(keys)}",
                found=f"{shown(key):.80}",
            )
    return {**keys, **request}
