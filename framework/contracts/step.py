"""The words in which engine core and model runner speak: plans, results, cache layout.

All arrays are numpy on the host.  R rows a step, one per request; a row is named by
(slot, generation).  A slot is a place in the runner's persistent batch; its generation
rises whenever a slot gets a new owner, so that a late result cannot reach the wrong one.

    tokens of a request   |0 ........ computed |.. num_new ..|      |
                          | in the cache       | this step   | later|

A row with `wants_logits` samples after its last new token.  The runner keeps every token
it was told or has sampled in a table by slot; a plan repeats none of them, so a plan may
be made while the step before is still in flight (loop depth 2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from framework.contracts.base import features_of, versioned
from framework.contracts.cache_plan import CacheGroup as CacheGroup
from framework.contracts.cache_plan import CacheLayoutName as CacheLayoutName
from framework.contracts.cache_plan import CachePlan as CachePlan
from framework.contracts.features import needed_features
from framework.contracts.pooling import PoolingParams
from framework.contracts.runner_info import RunnerInfo as RunnerInfo
from framework.contracts.sampling import SamplingParams

I32 = npt.NDArray[np.int32]
F32 = npt.NDArray[np.float32]
Bool = npt.NDArray[np.bool_]

_EMPTY_I32: I32 = np.zeros(0, np.int32)
_EMPTY_I32.flags.writeable = False


def empty_i32() -> I32:
    """The empty int32 array, shared and read-only."""
    return _EMPTY_I32


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedRequest:
    """A request that enters a slot, whole: also after a preemption.

    tokens: int32 [n], all that is known: prompt, then output generated so far.
    stop_ids: ids that end the request (end-of-sequence and stop_token_ids, as asked);
    masked by the sampler while fewer than `sampling.min_tokens` outputs exist.
    bad_words: token sequences that must not be completed.  seed: resolved, uint64.
    prompt_logprobs_from: first prompt position whose log-probability is still missing.
    pooling: what to make of the hidden states of the prompt, all of which are computed, in the
    step that has the row in `rows_to_pool`; `sampling` is None then.
    adapter: load id of an adapter or None.  payloads: references to bulk data by name, each name a
    feature that the runner declared.  "prompt_embeds": path of an `.npy` file, float32
    [num_prompt, H], what stands in place of the model's embeddings of the prompt, whose ids are
    0 and mean nothing; there as long as the request runs.
    encoder_tokens: states that an encoder leaves for cross attention.
    extras: per plugin, bytes that only its two halves understand.
    """

    slot: int
    generation: int
    request_id: str
    tokens: I32
    num_prompt: int
    sampling: SamplingParams | None
    seed: int
    stop_ids: tuple[int, ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()
    prompt_logprobs_from: int = 1
    adapter: int | None = None
    pooling: PoolingParams | None = None
    encoder_tokens: int = 0
    payloads: Mapping[str, str] = field(default_factory=dict)
    extras: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageUpdates:
    """Changes to the page tables of one group, ragged over U slots.

    For update u: `table[slots[u], starts[u] : starts[u] + counts[u]] = ids of u`; with
    `replace[u]` the row is first emptied.
    """

    slots: I32
    starts: I32
    counts: I32
    ids: I32
    replace: Bool


@dataclass(frozen=True, slots=True)
class KvOp:
    """An operation on whole pages, before the step's writes, in the order given."""

    kind: Literal["zero", "copy"]
    group: int
    source: int
    target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """One step.  A plan without rows is legal and has an empty result.

    step_id: rises by one.  slots, generations, num_new, computed: int32 [R].
    wants_logits: bool [R].  admitted: requests that enter their slots before this step.
    released: (slot, generation) that left since the plan before.  pages: one entry per group.
    draft_counts: int32 [R]; of `num_new`, the last draft_counts[r] tokens are drafts;
    draft_ids: int32 [sum]; draft_parents: tree structure or None for chains.
    drafts_wanted: how many drafts the runner may propose for the next step.
    rows_to_pool: bool [R], rows of pooled requests whose prompt ends with this step; None: no
    row.  attachments: bytes by plugin id.
    features: what this plan makes use of, a subset of `RunnerInfo.features`; it holds
    `features_of(plan)`, the features of all fields whose value is not neutral.
    lockstep: a dummy step in which only collectives count.
    """

    step_id: int
    slots: I32
    generations: I32
    num_new: I32
    computed: I32
    wants_logits: Bool
    admitted: tuple[AdmittedRequest, ...] = ()
    released: tuple[tuple[int, int], ...] = ()
    pages: tuple[PageUpdates, ...] = ()
    kv_ops: tuple[KvOp, ...] = ()
    draft_counts: I32 = field(default_factory=empty_i32)
    draft_ids: I32 = versioned(since="1.0", neutral=_EMPTY_I32, factory=empty_i32, feature="drafts")
    draft_parents: I32 | None = versioned(since="1.0", neutral=None, feature="draft_trees")
    drafts_wanted: int = 0
    rows_to_pool: Bool | None = versioned(since="1.0", neutral=None, feature="pooling")
    encoder_run: tuple[str, ...] = versioned(since="1.0", neutral=(), feature="encoder")
    encoder_free: tuple[str, ...] = versioned(since="1.0", neutral=(), feature="encoder")
    attachments: Mapping[str, bytes] = field(default_factory=dict)
    features: frozenset[str] = frozenset()
    lockstep: bool = versioned(since="1.0", neutral=False, feature="lockstep")

    @property
    def num_rows(self) -> int:
        return len(self.slots)

    def used(self) -> frozenset[str]:
        """Everything that a runner must have declared before it may compute this plan: its
        `features`, fields that only some runners read, and what requests ask that enter here."""
        asked = (needed_features(request) for request in self.admitted)
        return self.features.union(features_of(self), *asked)

    @property
    def num_tokens(self) -> int:
        return int(self.num_new.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class LateInputs:
    """What is known only after the step before.

    bitmask: uint32 [B, ceil(vocab / 32)], a set bit allows the token; bitmask_rows: int32 [B],
    the plan's row of each; covered: int32 [B], how many leading drafts of the row it covers.  Of a
    row with masks each token keeps to that of its own place, and past the last one there is none:
    what is allowed there is not known yet.
    """

    bitmask: npt.NDArray[np.uint32] | None = None
    bitmask_rows: I32 = field(default_factory=empty_i32)
    covered: I32 = field(default_factory=empty_i32)
    attachments: Mapping[str, bytes] = field(default_factory=dict)


NOTHING_LATE = LateInputs()


@dataclass(frozen=True, slots=True, kw_only=True)
class Logprobs:
    """Log-probabilities of T tokens, ragged.

    offsets: int32 [T + 1] into ids and values.  Entry 0 of a token is the token itself, then
    the best ones, best first.  ranks: int32 [T], 1 = most probable, of the token itself.
    """

    offsets: I32
    ids: I32
    values: F32
    ranks: I32

    def __len__(self) -> int:
        return len(self.ranks)

    def take(self, tokens: npt.NDArray[np.int64]) -> Logprobs:
        """The tokens at these indices, in this order, as copies."""
        starts = self.offsets.astype(np.int64)  # of any kind of integers
        counts = np.diff(starts)[tokens]
        offsets = np.zeros(len(tokens) + 1, np.int32)
        np.cumsum(counts, out=offsets[1:])
        entries = np.arange(offsets[-1]) + np.repeat(starts[tokens] - offsets[:-1], counts)
        return Logprobs(
            offsets=offsets,
            ids=self.ids[entries],
            values=self.values[entries],
            ranks=self.ranks[tokens],
        )

    def slice(self, start: int, stop: int) -> Logprobs:
        """Tokens [start, stop), as copies: nothing is shared with this object."""
        low, high = int(self.offsets[start]), int(self.offsets[stop])
        return Logprobs(
            offsets=self.offsets[start : stop + 1] - self.offsets[start],
            ids=self.ids[low:high].copy(),
            values=self.values[low:high].copy(),
            ranks=self.ranks[start:stop].copy(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptLogprobs:
    """Log-probabilities of prompt tokens start .. start + len(logprobs) - 1 of one row."""

    row: int
    start: int
    logprobs: Logprobs


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What one step brought, row by row in the order of the plan.

    slots, generations: echoed.  token_offsets: int32 [R + 1] into token_ids; a row without
    wants_logits has none; a row with d drafts has 1 .. d + 1 tokens.  accepted: int32 [R],
    drafts accepted.  draft_offsets, draft_ids: proposals for the next step (empty: none).  Tokens
    are ids in [0, vocab_size), or the engine stops; those of a row with an error mean nothing.
    logprobs: one entry per token in token_ids whose request asked, in that order:
    logprob_tokens: int32, indices into token_ids of the entries.  A request for which a value, also
    one of a prompt or of a vector, is NaN or +inf ends with an error.
    pooled: row -> float32 [D], the vector of each row to pool that has no error.
    errors: row -> sentence; that request ends with it, the others go on.
    invalid_pages: ids of pages whose content was lost.  timings: seconds by phase.
    """

    step_id: int
    slots: I32
    generations: I32
    token_offsets: I32
    token_ids: I32
    accepted: I32 = field(default_factory=empty_i32)
    draft_offsets: I32 = field(default_factory=empty_i32)
    draft_ids: I32 = field(default_factory=empty_i32)
    logprobs: Logprobs | None = None
    logprob_tokens: I32 = field(default_factory=empty_i32)
    prompt_logprobs: tuple[PromptLogprobs, ...] = ()
    pooled: Mapping[int, F32] = field(default_factory=dict)
    errors: Mapping[int, str] = field(default_factory=dict)
    invalid_pages: I32 = field(default_factory=empty_i32)
    attachments: Mapping[str, bytes] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ticket:
    """Names a submitted step.  `payload` belongs to the runner that made it."""

    step_id: int
    payload: object = None
