"""One broken runner for each clause of the suite; the scripted one and that of torch pass it."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace

import numpy as np
import pytest

from framework.contracts.step import StepResult
from framework.errors import IntegrityError
from framework.plugins.registry import PluginRegistry
from framework.testing import ScriptedRunner
from framework.testing.conformance import check
from framework.testing.conformance.suites.model_runner import ModelRunnerSuite
from framework.testing.masks import Masks
from tests.conformance.mutants import (
    IN_PROCESS,
    assert_caught,
    breaks,
    leave_a_thread,
    mutants_of,
    uncovered,
    unpaired,
)

COUNTER = itertools.count()
# Clauses that compare with a request alone, by what they put beside or before it.
BESIDE = ("RUN-013", "RUN-014", "RUN-023", "RUN-024", "RUN-030")
CUT = ("RUN-024", "RUN-026", "RUN-042")


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


@breaks("RUN-024")
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


@breaks("RUN-040")
class OtherScores(Runner):
    """Of the tokens beside them."""

    def finish(self, ticket, late):
        result = super().finish(ticket, late)
        if result.logprobs is None:
            return result
        return replace(result, logprobs=replace(result.logprobs, ids=result.logprobs.ids + 1))


class Lenient(Runner):
    """Takes plans that use `ignored`, which it does not declare."""

    ignored: frozenset[str] = frozenset()

    def __init__(self, options=None):
        super().__init__()
        self.features = self.features - self.ignored

    def submit(self, plan):
        declared, self.features = self.features, self.features | self.ignored
        try:
            return super().submit(plan)
        finally:
            self.features = declared


@breaks("RUN-041")
class LenientWithScores(Lenient):
    """Leaves log-probabilities out."""

    ignored = frozenset(("logprobs",))


@breaks("RUN-042")
class ScoresTheEnd(Runner):
    """Scores what it computes in the first part only."""

    def _score(self, row, occupant, computed, new):
        return [] if computed else super()._score(row, occupant, computed, new)


@breaks("RUN-043")
class LenientWithPrompts(Lenient):
    """Leaves prompt scores out."""

    ignored = frozenset(("prompt_logprobs",))


@breaks("RUN-044")
class CountsDraftsTwice(Runner):
    """The token after the drafts counts as one of them."""

    def finish(self, ticket, late):
        result = super().finish(ticket, late)
        counts = np.diff(result.token_offsets)
        return replace(result, accepted=np.where(counts > 1, counts, 0).astype(np.int32))


@breaks("RUN-045")
class LenientWithDrafts(Lenient):
    """Takes drafts for known tokens."""

    ignored = frozenset(("drafts",))


@breaks("RUN-046")
class LenientWithDummies(Lenient):
    """Computes a dummy step as any other."""

    ignored = frozenset(("lockstep",))


class Masking(Runner):
    """A sound one that keeps to masks.  keep: those of its late inputs that it takes."""

    def __init__(self, options=None):
        super().__init__(features=frozenset(("logprobs", "structured_outputs", "drafts")))

    def keep(self, late):
        return late

    def finish(self, ticket, late):
        return super().finish(ticket, self.keep(late))


@breaks("RUN-047", "RUN-049")
class MasksByOrder(Masking):
    """The first mask goes to the first row."""

    def keep(self, late):
        return replace(late, bitmask_rows=late.bitmask_rows * 0)


@breaks("RUN-049", "RUN-047")
class MasksRows(Masking):
    """The first mask of a row is for all that it samples."""

    def keep(self, late):
        words = None if late.bitmask is None else late.bitmask[:1].repeat(len(late.bitmask), 0)
        return replace(late, bitmask=words)


@breaks("RUN-049", "RUN-047")
class MasksTheNextTokenOnly(Masking):
    """A row's drafts are verified without a grammar."""

    def _sample(self, occupant, drafts):
        new = super()._sample(occupant, drafts[:0])
        self._masks = Masks()
        return [*new, *super()._sample(occupant, drafts[1:])] if drafts[:1] == new else new


@breaks("RUN-048")
class LenientWithMasks(Lenient):
    """Takes grammars and keeps to none."""

    ignored = frozenset(("structured_outputs",))


@breaks("RUN-050")
class GoesByIds(Runner):
    """Takes the ids of embeddings, which are 0, for those of the prompt."""

    def _enter(self, plan):
        plain = [replace(one, payloads={}) for one in plan.admitted]
        super()._enter(replace(plan, admitted=tuple(plain)))


@breaks("RUN-051")
class EndsTheStep(Runner):
    """One request whose embeddings are gone ends all of the step."""

    def _compute(self, plan):
        result = super()._compute(plan)
        if result.errors:
            return replace(result, errors=dict.fromkeys(range(plan.num_rows), "gone"))
        return result


@breaks("RUN-052")
class LenientWithEmbeddings(Lenient):
    """Computes them without a word."""

    ignored = frozenset(("prompt_embeds",))


MUTANTS = mutants_of(list(globals().values()))


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_caught(mutant):
    assert_caught(mutant, ModelRunnerSuite)


def test_every_clause_has_a_mutant_and_every_capability_both_sides():
    assert uncovered(ModelRunnerSuite, MUTANTS) == set()
    assert unpaired(ModelRunnerSuite) == set()


@pytest.mark.parametrize("runner", [ScriptedRunner, Lenient, Masking])
def test_the_scripted_runner_conforms(runner):
    report = check(runner, suite=ModelRunnerSuite, layers=IN_PROCESS)
    assert not report.failures, report.text()


@pytest.mark.skipif(not PluginRegistry().records("model_runner"), reason="no runner is installed")
def test_the_torch_runner_conforms():
    """On a tiny decoder with made-up weights: 39 clauses in some seconds, most of them torch's."""
    report = check("model_runner:torch")
    assert not report.failures, report.text()
