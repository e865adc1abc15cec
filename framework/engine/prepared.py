"""A request on its way from the front end to the core: tokenized, validated, fanned out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from framework.contracts.sampling import OutputKind, SamplingParams

if TYPE_CHECKING:
    from framework.contracts.messages import EngineInput
    from framework.contracts.pooling import PoolingParams

NOTHING_SAMPLED = SamplingParams(detokenize=False, output_kind=OutputKind.FINAL_ONLY)
"""Of a request that is pooled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What becomes of a prompt with its parameters, before it has a number."""

    sampling: SamplingParams
    max_total: int
    pooling: PoolingParams | None = None
    stop_ids: tuple[int, ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()
    extras: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRequest:
    """One request, ready for the core.

    request_id: unique in this engine.  client_id: what the client calls it.
    prompt: its text, if text was given.  inputs: one per output, in order of index.
    eos_ids: ids that end it as end-of-sequence; empty with ignore_eos.  adapter: its name.
    arrival_time: Unix time, seconds.
    """

    request_id: str
    client_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    sampling: SamplingParams
    inputs: tuple[EngineInput, ...]
    eos_ids: frozenset[int]
    arrival_time: float
    adapter: str | None = None


def fan_out(request: EngineInput) -> tuple[EngineInput, ...]:
    """One input per output of a processed request.

    Output 0 keeps the seed, so that n changes nothing for it; prompt log-probabilities are
    computed once.
    """
    from framework.core.random import derive_seed

    sampling = request.sampling
    if sampling.n == 1:
        return (request,)
    spared: dict[str, Any] = {} if sampling.max_tokens == 0 else {"prompt_logprobs": None}
    own, other = sampling.replace(n=1), sampling.replace(n=1, **spared)
    return tuple(
        msgspec.structs.replace(
            request,
            request_id=f"{request.request_id}.{index}",
            sampling=own if index == 0 else other,
            seed=request.seed if index == 0 else derive_seed(request.seed, index),
        )
        for index in range(sampling.n)
    )
