"""What a reservation of pages did, for the plan of the step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from framework.contracts.step import KvOp

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Growth:
    """New entries of one slot's page table in one group, from index `start` on."""

    group: int
    slot: int
    start: int
    ids: Sequence[int]


@dataclass(frozen=True, slots=True)
class Growths:
    """One new entry of each of these slots in one group; arrays of equal length."""

    group: int
    slots: Counts
    starts: Counts
    ids: Sequence[int]


@dataclass(frozen=True, slots=True)
class Allocation:
    """What `reserve` did: entries for the runner's tables, and page operations to do first."""

    growths: Sequence[Growth | Growths] = ()
    ops: Sequence[KvOp] = ()


NOTHING = Allocation()
