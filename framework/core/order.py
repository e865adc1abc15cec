"""In which order requests run, so that the last can be preempted for the first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from framework.core.state import CoreState


def running_order(state: CoreState, now: float) -> npt.NDArray[np.int64]:
    """Running slots, best first by (key, arrival).

    Where keys move, two that do not fit together could preempt each other in turn, and lose what
    they have, for ever.  So of those that were preempted again before they had more than the time
    before, the oldest comes first until it has.
    """
    slots, table = np.array(state.running, np.int64), state.slots
    if len(slots) and not state.policy.keys_are_fixed:
        table.key[slots] = state.policy.keys(table.view(slots, now, state.tenants))
        again = slots[table.planned[slots] <= table.regains[slots]]
        if len(again):
            table.key[again[np.argmin(table.arrival[again])]] = -np.inf
    return slots[np.lexsort((table.arrival[slots], table.key[slots]))]
