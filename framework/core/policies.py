"""The built-in scheduling policies; they come in through the same door as any other."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from framework.contracts.scheduling_policy import RequestArrays, SchedulingPolicy


class FirstComeFirstServed(SchedulingPolicy):
    """In order of arrival."""

    keys_are_fixed: ClassVar[bool] = True

    def keys(self, requests: RequestArrays) -> npt.NDArray[np.float64]:
        return np.zeros(len(requests))


class Priority(SchedulingPolicy):
    """Lower priority values first; among equals in order of arrival."""

    keys_are_fixed: ClassVar[bool] = True

    def keys(self, requests: RequestArrays) -> npt.NDArray[np.float64]:
        return requests.priority.astype(np.float64)
