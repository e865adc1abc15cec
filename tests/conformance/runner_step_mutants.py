"""Broken model runners: what becomes of the rows of a step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.conformance.mutants import (
    breaks,
)
from tests.conformance.runner_mutants import Runner

BESIDE = ("RUN-013", "RUN-014", "RUN-023", "RUN-024", "RUN-030", "RUN-050", "RUN-051")
CUT = ("RUN-024", "RUN-026", "RUN-042", "RUN-050")


@breaks("RUN-020")
class Sorts(Runner):
    """Rows in an order of its own."""

    def finish(self, ticket, late):
        result = super().finish(ticket, late)
        return replace(result, slots=np.sort(result.slots))


@breaks("RUN-020")
class CountsIn64Bits(Runner):
    """As numpy does where nobody says otherwise."""

    def finish(self, ticket, late):
        result = super().finish(ticket, late)
        return replace(result, token_ids=np.array(result.token_ids.tolist(), np.int64))


@breaks("RUN-021")
class SkipsEmptySteps(Runner):
    """Nothing to compute, nothing to do."""

    def _enter(self, plan):
        if plan.num_rows:
            super()._enter(plan)


@breaks("RUN-022", *CUT, "RUN-010", "RUN-011", "RUN-013")
class AlwaysSamples(Runner):
    """A token for each row, wanted or not."""

    def _compute(self, plan):
        return super()._compute(replace(plan, wants_logits=np.ones(plan.num_rows, np.bool_)))


class InBatch(Runner):
    """Knows how many rows there are."""

    rows = 0

    def _compute(self, plan):
        self.rows = plan.num_rows
        return super()._compute(plan)


@breaks("RUN-023", *BESIDE, "RUN-029")
class Crowded(InBatch):
    """Other tokens in company."""

    def script_of(self, request, position):
        return self.rows - 1


@breaks("RUN-024", "RUN-050")
class ForgetsAcrossChunks(InBatch):
    """Attends to the last chunk only."""

    def _compute(self, plan):
        self.cut = set(plan.slots[plan.computed > 0].tolist()) - {5}  # which shares pages
        return super()._compute(plan)

    def script_of(self, request, position):
        return int(position == request.num_prompt and request.slot in self.cut)


@breaks("RUN-025")
class StartsAnew(Runner):
    """Takes what came before a preemption for a prompt."""

    def script_of(self, request, position):
        return len(request.tokens) - request.num_prompt


@breaks("RUN-026", *BESIDE, "RUN-025", "RUN-029", "RUN-031", "RUN-044", "RUN-046")
class Inherits(Runner):
    """Tokens depend on how many owners a slot has had."""

    def script_of(self, request, position):
        return request.generation if request.generation < 9 else 0


@breaks("RUN-027")
class AnyOwner(Runner):
    """Computes for whoever is in the slot."""

    def _compute(self, plan):
        owners = [self._occupants[int(slot)][0] for slot in plan.slots]
        result = super()._compute(replace(plan, generations=np.array(owners, np.int32)))
        return replace(result, generations=plan.generations)


@breaks("RUN-028")
class WritesToPlans(Runner):
    """Works in the plan's own arrays."""

    def _compute(self, plan):
        mask = plan.wants_logits
        mask |= False
        return super()._compute(plan)


@breaks("RUN-029", "RUN-025")
class RandomBySlot(Runner):
    """A generator for each slot."""

    def script_of(self, request, position):
        return request.slot if request.sampling.temperature else 0


@breaks("RUN-030", "RUN-031")
class OwnPagesOnly(Runner):
    """Does not read what another has computed."""

    def _compute(self, plan):
        admitted = {request.slot for request in plan.admitted}
        self.foreign = {
            int(slot)
            for slot, computed in zip(plan.slots, plan.computed, strict=True)
            if computed and int(slot) in admitted
        }
        return super()._compute(plan)

    def script_of(self, request, position):
        return int(request.slot in self.foreign)


@breaks("RUN-031")
class LastOperationFirst(Runner):
    """Works its way back."""

    def _enter(self, plan):
        super()._enter(replace(plan, kv_ops=plan.kv_ops[::-1]))
