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
    needs = []
    if request.adapter is not None:
        needs.append("adapters")
    needs.extend(request.payloads)  # whoever reads one declares its name
    if request.pooling is not None:
        classes = ["classification"] if request.pooling.task == "classify" else []
        return frozenset([*needs, "pooling", *classes])
    sampling = request.sampling
    if sampling is not None:
        if sampling.logprobs is not None:
            needs.append("logprobs")
        if sampling.prompt_logprobs is not None:
            needs.append("prompt_logprobs")
        # Both are kept by masks of tokens, which is what a runner declares so.
        for name in SERVED:
            if getattr(sampling, name) is not None:
                needs.append("structured_outputs")
    return frozenset(needs)
