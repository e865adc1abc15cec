"""A request inside the engine core."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import TYPE_CHECKING

from framework.contracts.step import AdmittedRequest

if TYPE_CHECKING:
    from framework.contracts.messages import EngineInput
    from framework.contracts.step import I32
    from framework.core.kv.hashing import Hash


class Status(IntEnum):
    """WAITING: in the queue.  ASIDE: a participant made it wait.  LOADING: owns a slot whose
    pages are filled from elsewhere.  RUNNING: owns a slot and is computed.  FINISHED: gone;
    only late results still mention it."""

    WAITING = 0
    ASIDE = 1
    LOADING = 2
    RUNNING = 3
    FINISHED = 4


class Request:
    """What the core keeps of a request.

    tokens: int32, all known tokens while it has no slot; with a slot the slot table's row
    holds them.  There is no prefill or decode phase: `computed` tokens catch up with known
    ones.  hashes: chained hashes of its full pages, as far as they were needed; chain: the hash
    that goes on from the last of them.
    """

    __slots__ = (
        "arrival",
        "arrived_at",
        "asked",
        "attendants",
        "cached",
        "chain",
        "hashes",
        "in_vain",
        "input",
        "key",
        "num_prompt",
        "peak",
        "preempted",
        "prompt_logprobs_done",
        "reached",
        "slot",
        "status",
        "tenant",
        "tokens",
        "waited",
        "waits_since",
    )

    def __init__(self, entry: EngineInput, arrival: int, arrived_at: float, tenant: int) -> None:
        self.input = entry
        self.arrival = arrival
        self.arrived_at = arrived_at
        self.tenant = tenant
        self.tokens: I32 = entry.tokens
        self.num_prompt = len(entry.tokens)
        self.status = Status.WAITING
        self.slot = -1
        self.key = 0.0
        self.hashes: list[bytes] = []
        self.chain: Hash | None = None
        self.attendants: tuple[int, ...] = ()
        self.asked = 0  # so many of its attendants were asked to admit it, and must hear of its end
        self.cached: int | None = None
        self.waited = 0.0  # seconds until it first had a slot
        self.preempted = 0
        self.peak = 0  # most tokens that were planned when it was preempted
        self.in_vain = False  # it was preempted again before it had as many
        self.reached = 0  # most tokens that were ever planned, as far as the policy counts them
        self.waits_since = -math.inf  # seconds; when it was preempted last
        self.prompt_logprobs_done = 1  # position 0 has no log-probability

    @property
    def id(self) -> str:
        return self.input.request_id

    @property
    def lacks_prompt_logprobs(self) -> bool:
        """Some are wanted that have not come yet."""
        entry = self.input
        wanted = entry.pooling is None and entry.sampling.prompt_logprobs is not None
        return wanted and self.prompt_logprobs_done < self.num_prompt

    def hit_limit(self) -> int:
        """Most tokens that may be taken from the prefix cache.

        One token must always be computed, or there would be nothing to sample from, and no step
        in which a request without output could end; and prompt positions whose log-probabilities
        are missing must be computed again, as must all whose hidden states are pooled.
        """
        if self.input.pooling is not None:
            return 0
        limit = self.num_computable - 1
        if self.lacks_prompt_logprobs:
            # The log-probability of position p comes from the logits at p - 1.
            limit = min(limit, self.prompt_logprobs_done - 1)
        return limit

    def forget_hashes(self) -> None:
        """They are made again, from another root."""
        self.hashes.clear()
        self.chain = None

    @property
    def has_run(self) -> bool:
        """It has been in a slot; False while it has only waited."""
        return self.cached is not None

    @property
    def num_computable(self) -> int:
        """Tokens that a fresh start would compute: all known, but never the last one that the
        limit allows, unless it is the only one."""
        return min(len(self.tokens), self.cap)

    @property
    def cap(self) -> int:
        """Tokens that are ever computed: the last sampled one never is."""
        most = self.input.max_total
        return most if self.input.pooling is not None else max(most - 1, 1)

    def admitted(self, generation: int) -> AdmittedRequest:
        """The request as the runner gets it, whole."""
        entry = self.input
        return AdmittedRequest(
            slot=self.slot,
            generation=generation,
            request_id=entry.request_id,
            tokens=self.tokens,
            num_prompt=self.num_prompt,
            sampling=entry.sampling if entry.pooling is None else None,
            pooling=entry.pooling,
            seed=entry.seed,
            stop_ids=entry.stop_ids,
            bad_words=entry.bad_words,
            prompt_logprobs_from=self.prompt_logprobs_done,
            adapter=entry.adapter,
            encoder_tokens=entry.encoder_tokens,
            payloads=entry.payloads,
            extras=entry.extras,
        )
