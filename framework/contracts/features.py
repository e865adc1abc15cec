"""What a request asks of a runner beyond plain tokens, by the names that runners declare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from framework.contracts.pooling import PoolingParams
from framework.contracts.sampling import SamplingParams

SERVED: Mapping[str, str] = {
    "structured_outputs": 'pip install "framework[structured]", or leave it out',
    "thinking_token_budget": "pip install framework-plugin-parsers, or leave it out",
}
"""Fields of SamplingParams that a scheduler participant has to serve, and what to do without."""


class Asking(Protocol):
    """What `needed_features` reads of a request."""

    @property
    def sampling(self) -> SamplingParams | None: ...
    @property
    def pooling(self) -> PoolingParams | None: ...
    @property
    def adapter(self) -> int | None: ...
    @property
    def payloads(self) -> Mapping[str, str]: ...


def needed_features(request: Asking) -> frozenset[str]:
    """Features that a runner must have declared to serve a request, beyond plain tokens."""
    sampling = request.sampling
    needs = [
        ("adapters", request.adapter is not None),
        ("payloads", bool(request.payloads)),
        ("pooling", request.pooling is not None),
    ]
    if sampling is not None and request.pooling is None:
        needs += [
            ("logprobs", sampling.logprobs is not None),
            ("prompt_logprobs", sampling.prompt_logprobs is not None),
            # Both are kept by masks of tokens, which is what a runner declares so.
            ("structured_outputs", any(getattr(sampling, name) is not None for name in SERVED)),
        ]
    return frozenset([name for name, needed in needs if needed])
