"""What a reservation of pages did, for the plan of the step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from framework.contracts.step import I32, KvOp

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Growth:
    """New entries of one slot's page table in one group, from index `start` on."""

    group: int
    slot: int
    start: int
    ids: Sequence[int]


@dataclass(frozen=True, slots=True)
class Allocation:
    """What `reserve` did: entries for the runner's tables, and page operations to do first."""

    growths: Sequence[Growth] = ()
    ops: Sequence[KvOp] = ()


NOTHING = Allocation()


@dataclass(frozen=True, slots=True)
class PageBlock:
    """New entries of several slots' page tables in one group: ids, ragged by counts."""

    group: int
    slots: Counts
    starts: Counts
    counts: Counts
    ids: I32
