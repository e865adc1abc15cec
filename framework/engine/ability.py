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
    of a prompt; None: it makes none.  max_logprobs: most log-probabilities per token that a
    request may ask for; -1: any number."""

    generates: bool = True
    embedding_size: int | None = None
    max_logprobs: int = -1

    def check_generating(self) -> None:
        """Raises UnsupportedError unless the model continues prompts."""
        if not self.generates:
            raise UnsupportedError(
                "this model makes embeddings, it does not generate text",
                expected="a request for an embedding",
                found="a prompt to be continued",
                mend="use embed, encode or /v1/embeddings, or load a generative model",
            )

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

    def check_embedding(self, params: PoolingParams) -> None:
        """Raises UnsupportedError unless the model makes vectors, InputError unless it makes such
        as `params` wants."""
        if self.embedding_size is None:
            raise UnsupportedError(
                "this model generates text, it was not loaded to make embeddings",
                expected="an embedding model, or the option pooling",
                found="pooling=None",
                mend='load an embedding model, or this one with pooling="last" or pooling="mean"',
            )
        params.check(self.embedding_size)


GENERATES = Ability()
"""Text, and nothing else."""
