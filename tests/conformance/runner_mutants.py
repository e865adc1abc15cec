"""Broken model runners: how they are loaded, controlled and closed, and whose rows they serve."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace

import numpy as np
import pytest

from framework.contracts.step import StepResult
from framework.errors import IntegrityError
from framework.testing import ScriptedRunner
from tests.conformance.mutants import (
    breaks,
    leave_a_thread,
)

COUNTER = itertools.count()


class Runner(ScriptedRunner):
    """A sound one."""

    def script_of(self, request, position):
        """What to add to a token, in a mutant."""
        return 0

    def _sample(self, occupant, drafts):
        new = super()._sample(occupant, drafts)
        more = self.script_of(occupant.request, len(occupant.tokens) - len(new))
        return [token + more for token in new]


@breaks("RUN-001")
class NoPages(Runner):
    """Serves no page size."""

    def load(self, context):
        return replace(super().load(context), page_tokens=())


@breaks("RUN-002")
class AnotherModel(Runner):
    """One word more each time."""

    def load(self, context):
        return replace(super().load(context), vocab_size=1000 + next(COUNTER))


@breaks("RUN-003")
class NeedsNoCache(Runner):
    """Computes nothing before it is bound, and says so to nobody."""

    def submit(self, plan):
        self._bound = True
        return super().submit(plan)

    def finish(self, ticket, late):
        if hasattr(self, "cache"):
            return super().finish(ticket, late)
        nobody = np.zeros(0, np.int32)
        return StepResult(
            step_id=ticket.step_id,
            slots=nobody,
            generations=nobody,
            token_offsets=np.zeros(1, np.int32),
            token_ids=nobody,
        )


@breaks("RUN-004", "RUN-005")
class ClosesOnce(Runner):
    """Has nothing left to give back."""

    def close(self):
        assert not self.closed
        super().close()


@breaks("RUN-005")
class GoesOn(Runner):
    """Is never closed."""

    def close(self):
        return


@breaks("ALL-031")
class LeavesAThread(Runner):
    """Watches its device in a thread, which nobody ends."""

    def load(self, context):
        leave_a_thread()
        return super().load(context)


@breaks("ALL-030")
class SetsTheEnvironment(Runner):
    """Tells libraries of the whole process what it would like."""

    def load(self, context):
        os.environ["OMP_WAIT_POLICY"] = "active"
        return super().load(context)


@breaks("RUN-018", "ALL-030")
class ComputesInItsOwnType(Runner):
    """Makes all tensors of the process narrow while it lives."""

    def load(self, context):
        torch = pytest.importorskip("torch")
        torch.set_default_dtype(torch.bfloat16)
        return super().load(context)

    def close(self):
        torch = pytest.importorskip("torch")
        torch.set_default_dtype(torch.float32)
        super().close()


@breaks("RUN-006", "RUN-008", "RUN-015")
class DoesAnything(Runner):
    """Says yes to every operation."""

    def control(self, op, arguments):
        return {}


@breaks("RUN-007")
class SaysNothing(Runner):
    """Declares health, and has nothing to say."""

    def load(self, context):
        return replace(super().load(context), control_ops=frozenset(("health", "sleep", "wake")))

    def control(self, op, arguments):
        return None if op == "health" else super().control(op, arguments)


@breaks("RUN-008")
class TellsUnasked(Runner):
    """Tells of its health without having declared it."""

    def control(self, op, arguments):
        return {} if op == "health" else super().control(op, arguments)


@breaks("RUN-014")
class WakesAsAnother(Runner):
    """Loads other weights than before."""

    def control(self, op, arguments):
        if op == "wake" and self.asleep == 2:
            self.weights += 1
        return super().control(op, arguments)


@breaks("RUN-014")
class InsistsOnOwners(Runner):
    """Knows nobody after a sleep, and wants to have known who leaves."""

    def _enter(self, plan):
        for slot, _ in plan.released:
            if slot not in self._occupants:
                raise IntegrityError(f"nobody is in slot {slot}")
        super()._enter(plan)


@breaks("RUN-015")
class SleepWalks(Runner):
    """Goes on computing."""

    def control(self, op, arguments):
        return {} if op in ("sleep", "wake") else super().control(op, arguments)


@breaks("RUN-016")
class SleepsUnasked(Runner):
    """Can sleep, and has not said so."""

    def load(self, context):
        return replace(super().load(context), control_ops=frozenset())


@breaks("RUN-010")
class TakesAny(Runner):
    """Whatever is in flight."""

    def submit(self, plan):
        self.depth = len(self._waiting) + 1
        return super().submit(plan)

    def info(self):
        return replace(super().info(), max_loop_depth=2)


@breaks("RUN-011")
class InItsOwnOrder(Runner):
    """The oldest step, whichever was named."""

    def finish(self, ticket, late):
        return super().finish(replace(ticket, step_id=self._waiting[0].step_id), late)


@breaks("RUN-012", "RUN-010")
class DeclaresLess(Runner):
    """One step in flight, and takes two."""

    def load(self, context):
        return replace(super().load(context), max_loop_depth=1)


@breaks("RUN-013", "RUN-010", "RUN-011")
class ConfusedByTwo(Runner):
    """Other tokens when a step waits behind."""

    def finish(self, ticket, late):
        busy = len(self._waiting) > 1
        result = super().finish(ticket, late)
        return replace(result, token_ids=result.token_ids + 1) if busy else result
