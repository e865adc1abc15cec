"""What an engine can be asked for: text, vectors, or both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from framework.errors import InputError, UnsupportedError

if TYPE_CHECKING:
    from framework.contracts.pooling import PoolingParams
    from framework.contracts.sampling import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class Ability:
    """generates: the model continues prompts.  embedding_size: numbers of a vector that it makes
    of a prompt; None: it makes none.  class_labels: names of the classes that it tells prompts
    apart by; none: it does not.  max_logprobs: most log-probabilities per token that a
    request may ask for; -1: any number."""

    generates: bool = True
    embedding_size: int | None = None
    class_labels: tuple[str, ...] = ()
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
