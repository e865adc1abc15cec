"""A request on its way from the front end to the core: tokenized, validated, fanned out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from framework.contracts.sampling import OutputKind, SamplingParams

if TYPE_CHECKING:
    from framework.contracts.messages import EngineInput
    from framework.contracts.pooling import PoolingParams
    from framework.engine.payloads import Payload

_LOGGED = 64
"""Characters of a client's id that logs show."""
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
    arrival_time: Unix time, seconds.  held: bulk data of its prompt, there while it is `kept`.
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
    held: dict[str, Payload] = field(default_factory=dict)


@contextmanager
def kept(requests: Sequence[PreparedRequest]) -> Iterator[None]:
    """While they run; then their bulk data go, whatever still holds a request: an error and the
    frames that it went through may for long."""
    try:
        yield
    finally:
        for request in requests:
            request.held.clear()


def internal_id(number: int, client_id: str | None) -> str:
    """Unique, and told apart in every log by what the client calls it: of that the letters, digits
    and marks that are safe there."""
    if client_id is None:
        return str(number)
    known = "".join(c for c in client_id[:_LOGGED] if c.isascii() and (c.isalnum() or c in "-_."))
    return f"{number}:{known}"


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
