"""Kind `scheduling_policy`: who comes first, and who is preempted.

A policy sees arrays, never one request at a time.  The scheduler takes waiting requests in
ascending order of their key and preempts the running one with the largest; equal keys are
ordered by arrival.  Keys of waiting and of running requests are asked for in separate calls.

A request that is preempted is computed again.  One that was preempted again before it had more than
the time before is not put behind others once more until it has, whatever its key: else requests
that do not fit together could take turns for ever.

To be asked is no event: keys move with time (`now`), with the requests' own counts and with what
`served` tells, and are the same when the same arrays are shown again.  A policy without `served`
answers from the arrays alone.  What it is given may be shared: it must not change it.

Where a policy raises, or answers no n finite numbers, the requests it was asked about come in
order of arrival, and the log says so, once per kind of fault.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from framework.contracts.base import Contract


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestArrays:
    """n requests, one entry each.

    arrival: order of arrival, int64, unique.  arrived_at: seconds, float64, monotonic clock.
    priority: int64, lower first.  tenant: index into tenant_names, int64; once no request of a
    tenant is left, its index may go to another: what is to be kept for longer goes by name.
    prompt: tokens.  known: tokens known.  limit: prompt and output tokens at most.
    computed: tokens planned to be in the cache.  now: seconds, same clock as arrived_at.
    The arrays are copies, the names cannot be changed.
    """

    arrival: npt.NDArray[np.int64]
    arrived_at: npt.NDArray[np.float64]
    priority: npt.NDArray[np.int64]
    tenant: npt.NDArray[np.int64]
    prompt: npt.NDArray[np.int64]
    known: npt.NDArray[np.int64]
    limit: npt.NDArray[np.int64]
    computed: npt.NDArray[np.int64]
    now: float
    tenant_names: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.arrival)


class SchedulingPolicy(Contract):
    """keys_are_fixed: a request's key never changes and depends on no other request, so it is
    asked for only once, when the request arrives (`known` is then `prompt`, `computed` 0).  Else
    keys are asked for in every step."""

    kind: ClassVar[str] = "scheduling_policy"
    keys_are_fixed: ClassVar[bool] = False

    @abstractmethod
    def keys(self, requests: RequestArrays) -> npt.NDArray[np.float64]:
        """float64 [n], finite; smaller comes first.  n may be 0, and `tenant_names` changes."""

    def served(self, requests: RequestArrays, tokens: npt.NDArray[np.int64]) -> None:
        """After a step was planned: tokens of each of its requests, int64 [n]; n may be 0.  What
        is computed again after a preemption is not counted again."""
