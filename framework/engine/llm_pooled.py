"""What an engine in this process makes of prompts that it does not continue."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from framework.contracts.pooling import PoolingParams
from framework.engine.io import EMBEDDING
from framework.engine.llm_operator import OperatedLLM
from framework.engine.outputs import ClassificationOutput
from framework.engine.prompts import Prompt

if TYPE_CHECKING:
    from framework.contracts.io_processor import Params
    from framework.engine.outputs import EmbeddingOutput


class PooledLLM(OperatedLLM):
    """The part of `LLM` that makes vectors and classes."""

    @abstractmethod
    def ask(
        self,
        name: str,
        request: object,
        params: Params | None = None,
        *,
        priority: int = 0,
        lora_request: str | None = None,
    ) -> Any:
        """See LLM.ask."""

    def embed(
        self,
        prompts: Prompt | Sequence[Prompt],
        pooling_params: PoolingParams | None = None,
        *,
        priority: int = 0,
        lora_request: str | None = None,
    ) -> list[EmbeddingOutput]:
        """A vector for each prompt, in the order of the prompts.

        Raises UnsupportedError unless the model makes embeddings (a generative one does with the
        option `pooling`), InputError for a bad prompt before anything runs, and RequestError
        where one brought no vector.
        """
        found: list[EmbeddingOutput] = self.ask(
            EMBEDDING,
            prompts,
            PoolingParams() if pooling_params is None else pooling_params,
            priority=priority,
            lora_request=lora_request,
        )
        return found

    def classify(
        self,
        prompts: Prompt | Sequence[Prompt],
        pooling_params: PoolingParams | None = None,
        *,
        priority: int = 0,
        lora_request: str | None = None,
    ) -> list[ClassificationOutput]:
        """The class of each prompt, in the order of the prompts.

        Raises UnsupportedError unless the model has a head for classes, else as `embed`.
        """
        params = PoolingParams(task="classify") if pooling_params is None else pooling_params
        found = self.ask(EMBEDDING, prompts, params, priority=priority, lora_request=lora_request)
        labels = self._engine.inputs.able.class_labels
        return [ClassificationOutput.of(one, labels) for one in found]
