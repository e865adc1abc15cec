"""A scheduling policy: short prompts first, but every second of waiting counts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from framework.contracts.scheduling_policy import RequestArrays, SchedulingPolicy

TOKENS_PER_SECOND = 100.0


class ShortestFirst(SchedulingPolicy):
    """The key is the prompt's length, less 100 tokens for each second since arrival, so that
    a long prompt overtakes every newcomer after a bounded time."""

    def keys(self, requests: RequestArrays) -> npt.NDArray[np.float64]:
        waited = requests.now - requests.arrived_at
        return requests.prompt - TOKENS_PER_SECOND * waited
