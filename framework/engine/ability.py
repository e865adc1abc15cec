"""What an engine can be asked for: text, vectors, or both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from framework.engine.prompt_embeds import check_width
from framework.errors import InputError, UnsupportedError

if TYPE_CHECKING:
    from framework.contracts.io_processor import Params
    from framework.contracts.pooling import PoolingParams
    from framework.contracts.sampling import SamplingParams
    from framework.contracts.step import F32


@dataclass(frozen=True, slots=True, kw_only=True)
class Ability:
    """generates: the model continues prompts.  embedding_size: numbers of a vector that it makes
    of a prompt; None: it makes none.  class_labels: names of the classes that it tells prompts
    apart by; none: it does not.  prompt_embeds: numbers of an embedding of a token that it takes
    in place of ids; None: it takes none.  max_logprobs: most log-probabilities per token that a
    request may ask for; -1: any number."""

    generates: bool = True
    embedding_size: int | None = None
    class_labels: tuple[str, ...] = ()
    prompt_embeds: int | None = None
    max_logprobs: int = -1

    def check_generating(self) -> None:
        """Raises UnsupportedError unless the model continues prompts."""
        if not self.generates:
            raise UnsupportedError(
                "this model pools prompts, it does not generate text",
                expected=f"a request for {' or '.join(self._pools())}",
                found="a prompt to be continued",
                mend="use embed, encode, /v1/embeddings or /classify, or load a generative model",
            )

    def _pools(self) -> list[str]:
        vectors = () if self.embedding_size is None else ("an embedding",)
        return [*vectors, *(("classes",) if self.class_labels else ())]

    def check_logprobs(self, params: SamplingParams, vocab_size: int) -> None:
        """Raises InputError if `params` asks for more than may be asked for."""
        for name in ("logprobs", "prompt_logprobs"):
            wanted = getattr(params, name) or 0
            if 0 <= self.max_logprobs < (vocab_size if wanted == -1 else wanted):
                raise InputError(
                    f"{name} is invalid",
                    parameter=name,
                    expected=f"at most {self.max_logprobs}",
                    found=wanted,
                    mend="ask for fewer, or start the server with a higher --max-logprobs",
                )

    def check_embeds(self, embeds: F32, params: Params) -> None:
        """Raises UnsupportedError unless the model takes prompts as embeddings, InputError unless
        these fit it, and for what can only be told of ids."""
        if self.prompt_embeds is None:
            raise UnsupportedError(
                "this model runner takes no prompts as embeddings",
                expected="a prompt as text or token ids",
                found="prompt_embeds",
                mend="choose a runner that declares the feature prompt_embeds",
            )
        check_width(embeds, self.prompt_embeds)
        scores = getattr(params, "prompt_logprobs", None)  # of a prompt that is pooled, none
        if scores is not None:
            raise InputError(
                "prompt_logprobs is invalid",
                parameter="prompt_logprobs",
                expected="None, beside prompt_embeds: embeddings have no token to be scored",
                found=scores,
            )

    def check_pooling(self, params: PoolingParams) -> None:
        """Raises UnsupportedError unless the model makes what `params` wants of a prompt,
        InputError unless it makes such."""
        if params.task == "classify":
            if not self.class_labels:
                raise UnsupportedError(
                    "this model does not classify",
                    expected="a model with a head for classes, such as one of "
                    "BertForSequenceClassification",
                    found="none",
                    mend="load such a model, or ask for an embedding",
                )
            return
        if self.embedding_size is None:
            raise UnsupportedError(
                "this model was not loaded to make embeddings",
                expected="an embedding model, or the option pooling",
                found="pooling=None",
                mend='load an embedding model, or this one with pooling="last" or pooling="mean"',
            )
        params.check(self.embedding_size)


GENERATES = Ability()
"""Text, and nothing else."""
