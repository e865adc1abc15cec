"""The built-in scheduling policies; they come in through the same door as any other."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field

from framework.contracts.scheduling_policy import RequestArrays, SchedulingPolicy


class FirstComeFirstServed(SchedulingPolicy):
    """In order of arrival."""

    keys_are_fixed: ClassVar[bool] = True

    def keys(self, requests: RequestArrays) -> npt.NDArray[np.float64]:
        return np.zeros(len(requests))


class PriorityOptions(BaseModel, extra="forbid"):
    """ageing_seconds: seconds of waiting that are worth one step of priority; None: nothing
    is, and a request may wait for ever behind better ones."""

    ageing_seconds: float | None = Field(default=300.0, gt=0, allow_inf_nan=False)


class Priority(SchedulingPolicy):
    """Lower priority values first; among equals in order of arrival.

    A request ages: waiting `ageing_seconds` makes up for one step of priority.  So one of
    priority p is overtaken by newcomers of priority q < p only during its first
    (p - q) * ageing_seconds, and no request waits for ever.  As all age alike, the order of
    two requests never changes, and a key is computed once: priority * ageing + arrival.
    """

    keys_are_fixed: ClassVar[bool] = True
    Options = PriorityOptions

    def __init__(self, options: BaseModel | None = None) -> None:
        super().__init__(options)
        chosen = options if isinstance(options, PriorityOptions) else PriorityOptions()
        self._ageing = chosen.ageing_seconds

    def keys(self, requests: RequestArrays) -> npt.NDArray[np.float64]:
        if self._ageing is None:
            return requests.priority.astype(np.float64)
        return requests.priority * self._ageing + requests.arrived_at
