"""Asks the proposer after each step, and checks what it says."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from framework.contracts.base import name_of
from framework.contracts.proposer import ComputedStep, DraftForward, SpeculativeProposer
from framework.contracts.step import I32, AdmittedRequest, Bool, StepPlan, empty_i32
from framework.plugins.blame import told
from framework.shown import shown
from framework_torch.batch import TokenTable, ragged_range
from framework_torch.drafting.lengths import DraftLengths
from framework_torch.prepare import StepInputs
from framework_torch.sampling import Sampled

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Drafts:
    """For the next step: offsets int32 [R + 1] into ids, by the plan's rows."""

    offsets: I32
    ids: I32


NO_DRAFTS = Drafts(empty_i32(), empty_i32())


class Drafting:
    """A proposer with what it is shown, and the lengths that are of use."""

    def __init__(
        self,
        proposer: SpeculativeProposer,
        table: TokenTable,
        max_drafts: int,
        vocab_size: int,
        forward: DraftForward | None = None,
        taps: tuple[int, ...] = (),
    ) -> None:
        self._proposer, self._table, self._vocab_size = proposer, table, vocab_size
        self._forward = forward
        self.taps = taps
        self.lengths = DraftLengths(len(table.known), max_drafts)
        self._off = np.zeros(len(table.known), np.bool_)

    def admit(self, request: AdmittedRequest) -> None:
        """A request enters its slot.  Where the proposer fails it gets no drafts, and where its
        prompt has no ids, which proposers go by."""
        self.lengths.start(request.slot)
        self._off[request.slot] = bool(self._table.first[request.slot])
        try:
            self._proposer.admit(request)
        except (Exception, SystemExit) as error:
            self._fail(np.array([request.slot]), f"failed in admit: {told(error)}")

    def drop(self, slot: int) -> None:
        """It leaves."""
        try:
            self._proposer.drop(slot)
        except (Exception, SystemExit) as error:
            logger.warning("%s failed in drop: %s", name_of(self._proposer), told(error))

    def propose(
        self,
        plan: StepPlan,
        inputs: StepInputs,
        sampled: Sampled,
        hidden: torch.Tensor,
        taps: Sequence[torch.Tensor],
        seconds: float,
    ) -> Drafts:
        """Drafts for the step after `plan`, of which the model took `seconds`.

        hidden: of all T tokens of the step; taps: the same after some layers.
        """
        counts = np.bincount(sampled.rows, minlength=plan.num_rows)[inputs.rows].astype(np.int32)
        self._learn(inputs, counts, seconds)
        got = counts > 0
        slots = inputs.slots
        wanted = np.zeros(len(slots), np.int32)
        if plan.drafts_wanted:
            room = self._table.width - 1 - self._table.known[slots]
            most = np.minimum(room, plan.drafts_wanted)
            mine = got & (most > 0) & ~self._off[slots]
            wanted[mine] = np.minimum(self.lengths.wanted(slots[mine], len(slots)), most[mine])
        everything = self._proposer.need != "tokens"
        rows = np.flatnonzero(~self._off[slots] if everything else wanted > 0)
        if not len(rows):
            return NO_DRAFTS
        step = self._step(inputs, rows, wanted, counts, hidden, taps)
        began = time.perf_counter()
        told_ids = self._ask(step)
        drafts = sum(map(len, told_ids))
        self.lengths.cost.add_proposal(drafts, time.perf_counter() - began)
        return _by_plan(plan, inputs.rows[rows], told_ids) if drafts else NO_DRAFTS

    def _learn(self, inputs: StepInputs, counts: I32, seconds: float) -> None:
        tried = np.flatnonzero((inputs.drafts > 0) & (counts > 0))
        if len(tried):
            accepted = counts[tried] - 1
            self.lengths.verified(inputs.slots[tried], inputs.drafts[tried], accepted)
        if (inputs.num_new == inputs.drafts + 1).all():  # prompts are computed at other prices
            self.lengths.cost.add(len(inputs.tokens), seconds)

    def _step(
        self,
        inputs: StepInputs,
        rows: np.ndarray,
        wanted: I32,
        counts: I32,
        hidden: torch.Tensor,
        taps: Sequence[torch.Tensor],
    ) -> ComputedStep:
        slots, starts = inputs.slots[rows], inputs.computed[rows]
        certain = inputs.num_new[rows] - inputs.drafts[rows] + np.maximum(counts[rows] - 1, 0)
        sampled: Bool = counts[rows] > 0
        states = None
        if self._proposer.need == "hidden_states":
            first = np.repeat(inputs.query_starts[:-1][rows], certain)
            at = torch.from_numpy(first + ragged_range(certain)).to(hidden.device)
            states, taps = hidden[at], [tap[at] for tap in taps]
        return ComputedStep(
            slots=slots,
            starts=starts,
            lengths=(starts + certain + sampled).astype(np.int32),
            wanted=wanted[rows],
            sampled=sampled,
            tokens=self._table.tokens,
            hidden=states,
            taps=tuple(taps),
            forward=None if self._proposer.need == "tokens" else self._forward,
        )

    def _ask(self, step: ComputedStep) -> list[I32]:
        """What the proposer says, an array a row; nothing where it fails or says what cannot be."""
        try:
            answer = self._proposer.propose(step)
            told_ids = [np.asarray(ids, np.int64).reshape(-1) for ids in answer]
        except (Exception, SystemExit) as error:
            self._fail(step.slots, f"failed in propose: {told(error)}")
            return [empty_i32()] * len(step.slots)
        if len(told_ids) != len(step.slots):
            flaw = f"proposed for {len(told_ids)} rows of {len(step.slots)}"
            self._fail(step.slots, flaw)
            return [empty_i32()] * len(step.slots)
        good: list[I32] = []
        for slot, ids, most in zip(step.slots, told_ids, step.wanted.tolist(), strict=True):
            if len(ids) > most or (len(ids) and not 0 <= ids.min() <= ids.max() < self._vocab_size):
                self._fail(
                    np.array([slot]),
                    f"proposed {shown(ids)}, where at most {most} ids below "
                    f"{self._vocab_size} were wanted",
                )
                ids = empty_i32()
            good.append(ids.astype(np.int32))
        return good

    def _fail(self, slots: np.ndarray, flaw: str) -> None:
        self._off[slots] = True
        logger.warning(
            "%s %s; requests in slots %s go on without drafts",
            name_of(self._proposer),
            flaw,
            slots.tolist(),
        )


def _by_plan(plan: StepPlan, rows: np.ndarray, drafts: Sequence[I32]) -> Drafts:
    counts = np.zeros(plan.num_rows, np.int32)
    counts[rows] = [len(ids) for ids in drafts]
    offsets: I32 = np.zeros(plan.num_rows + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return Drafts(offsets, np.concatenate(drafts).astype(np.int32))
