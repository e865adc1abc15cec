"""What an engine can be asked for: text, vectors, or both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from framework.errors import UnsupportedError

if TYPE_CHECKING:
    from framework.contracts.pooling import PoolingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class Ability:
    """generates: the model continues prompts.  embedding_size: numbers of a vector that it makes
    of a prompt; None: it makes none."""

    generates: bool = True
    embedding_size: int | None = None

    def check_generating(self) -> None:
        """Raises UnsupportedError unless the model continues prompts."""
        if not self.generates:
            raise UnsupportedError(
                "this model makes embeddings, it does not generate text",
                expected="a request for an embedding",
                found="a prompt to be continued",
                mend="use embed, encode or /v1/embeddings, or load a generative model",
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
