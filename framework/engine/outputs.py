"""What a user gets back.  Every object owns its lists: nothing is shared between outputs, but for
the ids of the prompt, which the deltas of one stream have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from framework.errors import FrameworkError, InputError, OverdueError, RequestError

FinishReason = Literal["stop", "length", "abort", "error"]


@dataclass(frozen=True, slots=True)
class Logprob:
    """One candidate at one position.

    logprob: natural logarithm of its probability.  rank: 1 is the most probable.
    decoded_token: its text; U+FFFD stands for bytes that are not whole characters.
    bytes: its exact bytes; those of an output's tokens concatenate to the output's text.
    """

    logprob: float
    rank: int
    decoded_token: str
    bytes: bytes


LogprobsAt = dict[int, Logprob]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMetrics:
    """Unix times in seconds; None while it has not happened."""

    arrival_time: float
    first_token_time: float | None = None
    finished_time: float | None = None


@dataclass(slots=True, kw_only=True)
class CompletionOutput:
    """One of the `n` outputs of a request; with OutputKind.DELTA what is new of it.

    index: in [0, n).  token_ids: with the id that ended the output; cut behind the token
    that completes a stop string.  cumulative_logprob: sum over all tokens of the output so
    far, None unless logprobs were asked for.  logprobs: per token, id -> Logprob, the token
    itself first.  finish_reason: None while it runs.  stop_reason: None for end-of-sequence,
    the stop id, the stop string, or the sentence of an error.  timed_out: that error is none of
    the engine's; the request's time to wait was over before its turn came.  refused: neither is
    that one; a plugin does not let the request run as it was asked.
    """

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: list[LogprobsAt] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    timed_out: bool = False
    refused: bool = False

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None

    @property
    def error(self) -> FrameworkError | None:
        """What to raise for an output that ended with an error, None for others: InputError if it
        was refused, OverdueError if it timed out, else RequestError."""
        if self.finish_reason != "error":
            return None
        kind = InputError if self.refused else OverdueError if self.timed_out else RequestError
        return kind(str(self.stop_reason))


@dataclass(slots=True, kw_only=True)
class RequestOutput:
    """The answer to one prompt, whole or in part.

    prompt: as text, None when ids were given.  prompt_logprobs: per prompt token, None for
    the first; with OutputKind.DELTA only in one output, the first after all are known.
    finished: all outputs are.  pooled: the vector of a request for one, float32 [D], once it is
    finished; its only output is empty.
    num_cached_tokens: prompt tokens that came from the prefix cache.  lora_request: name of the
    adapter, or None.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    prompt_logprobs: list[LogprobsAt | None] | None
    outputs: list[CompletionOutput]
    finished: bool
    num_cached_tokens: int = 0
    metrics: RequestMetrics | None = None
    pooled: npt.NDArray[np.float32] | None = None
    lora_request: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingOutput:
    """The vector of one prompt.

    prompt: as text, None when ids were given.  prompt_token_ids: of which the vector was made.
    embedding: float32 [D], of the caller's own; of a prompt to be classified a number for each
    class.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    embedding: npt.NDArray[np.float32]
    metrics: RequestMetrics | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassificationOutput:
    """The class of one prompt.

    prompt: as text, None when ids were given.  label: of the likeliest class.  probs: float32 [C],
    of all classes, in the order of the model's labels.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    label: str
    probs: npt.NDArray[np.float32]
    metrics: RequestMetrics | None = None

    @classmethod
    def of(cls, found: EmbeddingOutput, labels: Sequence[str]) -> ClassificationOutput:
        """From the numbers of the classes."""
        return cls(
            request_id=found.request_id,
            prompt=found.prompt,
            prompt_token_ids=found.prompt_token_ids,
            label=labels[int(found.embedding.argmax())],
            probs=found.embedding,
            metrics=found.metrics,
        )
