"""Weighted fair queueing by tenant: nobody's flood makes others wait.

Start-time fair queueing (P. Goyal, H. M. Vin, H. Cheng, "Start-time Fair Queueing: A
Scheduling Algorithm for Integrated Services Packet Switching Networks", SIGCOMM 1996), with
tokens for bits.  How many tokens a request will cost is not known when it comes, so that a
tenant is charged for what was computed, step by step, rather than for whole requests.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from framework.contracts.scheduling_policy import RequestArrays, SchedulingPolicy

F64 = npt.NDArray[np.float64]
MOST_DEBTS = 4096


# Within these a token counts, whatever the others weigh: see `FairQueueing._begin_anew`.
Weight = Annotated[float, Field(ge=1e-9, le=1e9)]
FAR = 2.0**20


class FairOptions(BaseModel):
    """Options of `FairQueueing`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    weights: dict[str, Weight] = Field(
        default_factory=dict,
        description="name of a tenant -> its share, relative to others, from 1e-9 to 1e9",
    )
    default_weight: Weight = Field(default=1.0, description="of tenants that are not named")


class FairQueueing(SchedulingPolicy):
    """Each tenant has a virtual time, which advances by the tokens that were computed for it,
    divided by its weight; the tenant that is furthest behind comes first.

    A tenant that had nothing to do starts at the system's virtual time, that of the busy
    tenant furthest behind when the last step began: idling earns no credit.  What it was
    ahead, it remains ahead.

        virtual time   system       A            B
                         v          |            |
        requests       --+----------a1---a2------+---a3--     keys of A: A + cost before
                                                 b1--b2--     keys of B: B + cost before

    Several requests of one tenant are spaced by the cost of those before them, in order of
    arrival, so that one step shares out its slots and tokens fairly too.  Effects: `keys`
    notes which tenants are busy, `served` charges them.

    Of a tenant whose index went to another is kept how far it was ahead of the system's virtual
    time, until that has come up; beyond 4096 such tenants, only of those furthest ahead.
    """

    Options: ClassVar[type[BaseModel] | None] = FairOptions

    def __init__(self, options: BaseModel | None = None) -> None:
        super().__init__(options)
        chosen = options if isinstance(options, FairOptions) else FairOptions()
        self._weights, self._default = chosen.weights, chosen.default_weight
        self._names: list[str | None] = []
        self._index: dict[str, int] = {}  # of those names
        self._debts: dict[str, float] = {}  # virtual times of tenants without an index
        self._weight: F64 = np.zeros(0)
        self._time: F64 = np.zeros(0)
        self._busy = np.zeros(0, np.bool_)  # had something to do up to the last step
        self._seen = np.zeros(0, np.bool_)  # has something to do since
        self._now = 0.0

    def keys(self, requests: RequestArrays) -> F64:
        tenant = requests.tenant
        self._meet(requests)
        self._seen[tenant] = True
        come = self._seen & ~self._busy
        if come.any():
            self._time[come] = np.maximum(self._time[come], self._now)
            self._busy |= come
        cost = np.maximum(requests.known - requests.computed, 0)
        keys: F64 = (
            self._time[tenant] + _before(tenant, requests.arrival, cost) / (self._weight[tenant])
        )
        return keys

    def served(self, requests: RequestArrays, tokens: npt.NDArray[np.int64]) -> None:
        if not len(requests):
            return
        self._meet(requests)
        self._seen[requests.tenant] = True
        # The start tag of what is in service, hence before the charge.  It never goes back,
        # or a tenant could gain by coming later.
        self._now = max(self._now, float(self._time[self._seen].min()))
        tokens_of = np.bincount(requests.tenant, weights=tokens, minlength=len(self._time))
        self._time += tokens_of / self._weight
        self._busy, self._seen = self._seen, self._busy
        self._seen[:] = False
        if self._now > FAR:
            self._begin_anew()

    def _begin_anew(self) -> None:
        """Count from the system's virtual time on, before it is so large that a token of a
        tenant with a large weight would be lost in rounding, and the tenant never charged."""
        past, self._now = self._now, 0.0
        self._time = np.maximum(self._time - past, 0.0)  # who is behind would start there, too
        self._debts = {name: time - past for name, time in self._debts.items() if time > past}

    def _meet(self, requests: RequestArrays) -> None:
        """Room for tenants that came since, be it at an index that was another's."""
        names = requests.tenant_names
        more = len(names) - len(self._names)
        if more > 0:
            self._names += [None] * more
            self._weight = np.concatenate([self._weight, np.ones(more)])
            self._time = np.concatenate([self._time, np.zeros(more)])
            self._busy = np.concatenate([self._busy, np.zeros(more, np.bool_)])
            self._seen = np.concatenate([self._seen, np.zeros(more, np.bool_)])
        present = np.flatnonzero(np.bincount(requests.tenant)).tolist()
        moved = [index for index in present if self._names[index] != names[index]]
        # All leave before any enters: one may enter where another was, and the other way round.
        for index in moved:
            self._leave(index)
        for index in moved:
            self._enter(index, names[index])

    def _leave(self, index: int) -> None:
        """Whoever had the index has it no longer."""
        name = self._names[index]
        if name is None:
            return
        if self._time[index] > self._now:
            self._debts[name] = float(self._time[index])
        if len(self._debts) > MOST_DEBTS:
            ahead = sorted(self._debts.items(), key=lambda debt: debt[1])[MOST_DEBTS // 2 :]
            self._debts = {tenant: time for tenant, time in ahead if time > self._now}
        self._names[index] = None
        self._busy[index] = self._seen[index] = False
        del self._index[name]

    def _enter(self, index: int, name: str) -> None:
        """The index belongs to `name` now, which may have had another that nobody took since."""
        if name in self._index:
            self._leave(self._index[name])
        self._names[index], self._index[name] = name, index
        self._weight[index] = self._weights.get(name, self._default)
        self._time[index] = self._debts.pop(name, 0.0)


def _before(
    tenant: npt.NDArray[np.int64], arrival: npt.NDArray[np.int64], cost: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Cost of the same tenant's requests that arrived before, int64 [n]."""
    order = np.lexsort((arrival, tenant))
    sorted_tenant, sorted_cost = tenant[order], cost[order]
    before = np.cumsum(sorted_cost) - sorted_cost
    first = np.searchsorted(sorted_tenant, sorted_tenant)
    result = np.empty_like(before)
    result[order] = before - before[first]
    return result
