"""What front end and engine core say to each other: requests in, outputs as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from framework.contracts.pooling import PoolingParams
from framework.contracts.sampling import SamplingParams
from framework.contracts.step import F32, I32, Logprobs, empty_i32

F64 = npt.NDArray[np.float64]
FinishReason = Literal["stop", "length", "abort", "error"]


class EngineInput(msgspec.Struct, frozen=True, kw_only=True):
    """One request, tokenized and validated.  A struct, as SamplingParams: made once for each
    request, at a fifth of what a dataclass of so many fields costs.

    request_id: unique inside the engine; client_id: what the client calls it.
    tokens: int32 [n], the prompt, n >= 1.  priority: lower first.  deadline: seconds left, or
    None.  salt: keeps the prefix cache apart.  stop_ids: all ids that end it.
    seed: resolved, uint64.  max_total: prompt and output tokens together at most.
    pooling: the prompt is made into one vector and not continued; `sampling` says nothing then.
    encoder_tokens: states that an encoder leaves for cross attention.
    payloads: references to bulk data by name; a runner must have declared each name as a feature.
    With "prompt_embeds" the prompt has no ids: `tokens` are 0 there and say how long it is.
    extras: plugin name -> bytes; a participant attends requests that name it here.
    """

    request_id: str
    tokens: I32
    sampling: SamplingParams
    seed: int
    max_total: int
    client_id: str = ""
    stop_ids: tuple[int, ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()
    tenant: str = ""
    priority: int = 0
    deadline: float | None = None
    salt: str | None = None
    adapter: int | None = None
    pooling: PoolingParams | None = None
    encoder_tokens: int = 0
    trace_headers: Mapping[str, str] = {}
    payloads: Mapping[str, str] = {}
    extras: Mapping[str, bytes] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Output row that ended.  stop: the token id that ended it, with reason "stop".
    error: a sentence, with reason "error".  timed_out: nothing failed; its time to wait was over
    before its turn came.  refused: nothing failed; it cannot be served as it was asked."""

    row: int
    reason: FinishReason
    stop: int | None = None
    error: str | None = None
    timed_out: bool = False
    refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPart:
    """Log-probabilities of prompt tokens from `start` on, of output row `row`."""

    row: int
    start: int
    logprobs: Logprobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooled:
    """The vector of the request of output row `row`, float32 [D]."""

    row: int
    vector: F32


@dataclass(frozen=True, slots=True, kw_only=True)
class KVEvent:
    """A change of the prefix cache, for routers and other caches.

    name: of the page, a hash of all tokens up to its end.  parent: name of what lies before
    it, None at the start.  tokens: those of the page itself.  A "cleared" has none of them.
    """

    kind: Literal["stored", "removed", "cleared"]
    group: int = 0
    name: bytes = b""
    parent: bytes | None = None
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """State after a step.  Counters only rise.

    pages_used: not free, pinned ones included.  prefix_queries, prefix_hits: tokens asked for
    and found.  prefix_evictions: names lost because their page was needed.
    prefix_collisions: names found with other contents; treated as not found.
    drafted: times that drafts of a request were verified.  drafts: how many they were.  accepted:
    how many of them were accepted, by their place among the drafts of a step.
    """

    running: int = 0
    waiting: int = 0
    pages_used: int = 0
    pages_total: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    prefix_evictions: int = 0
    prefix_collisions: int = 0
    pages_pinned: int = 0
    preemptions: int = 0
    drafted: int = 0
    drafts: int = 0
    accepted: tuple[int, ...] = ()
    loading: int = 0
    waiting_reasons: Mapping[str, int] = field(default_factory=dict)


_EMPTY_F64: F64 = np.zeros(0, np.float64)
_EMPTY_F64.flags.writeable = False


class EngineOutputs(msgspec.Struct, frozen=True, kw_only=True):
    """What one step brought, R rows.

    request_ids: one per row.  token_offsets: int32 [R + 1] into token_ids.
    logprobs, logprob_tokens: as in StepResult.  cached: int32 [R], prompt tokens that came
    from the prefix cache.  waited: float64, of the rows that got tokens in this step, which
    come first: seconds until the request first had a slot.  num_computed: tokens that the
    step computed, of all rows.
    """

    step_id: int
    request_ids: tuple[str, ...] = ()
    token_offsets: I32 = empty_i32()
    token_ids: I32 = empty_i32()
    logprobs: Logprobs | None = None
    logprob_tokens: I32 = empty_i32()
    prompt_logprobs: tuple[PromptPart, ...] = ()
    pooled: tuple[Pooled, ...] = ()
    finished: tuple[Finished, ...] = ()
    cached: I32 = empty_i32()
    waited: F64 = _EMPTY_F64
    num_computed: int = 0
    stats: EngineStats = EngineStats()
