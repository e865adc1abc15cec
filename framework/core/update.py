"""What a finished step changes: tokens are appended, requests end, pages get names."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from framework.contracts.messages import EngineOutputs, Finished, Pooled, PromptPart
from framework.core.kept import taken_logprobs, taken_tokens
from framework.core.logprobs import check_scored, faults_by_row, prompt_parts
from framework.core.results import check_given, check_whole
from framework.plugins.blame import in_one_line

if TYPE_CHECKING:
    from framework.contracts.model_runner import ModelRunner
    from framework.contracts.step import StepPlan, StepResult
    from framework.core.request import Request
    from framework.core.state import CoreState

logger = logging.getLogger("framework.update")

Rows = npt.NDArray[np.int64]


@dataclass(slots=True)
class _Progress:
    """live: rows whose request still owns the slot.  taken: tokens accepted per row.
    errors: row -> sentence, of the runner and of participants.  ended: row -> (reason, stop id,
    error)."""

    live: npt.NDArray[np.bool_]
    all_live: bool
    taken: Rows
    errors: dict[int, str]
    ended: dict[int, tuple[Literal["stop", "length", "error"], int | None, str | None]] = field(
        default_factory=dict
    )


class Updater:
    """Applies results to a `CoreState`."""

    def __init__(
        self, state: CoreState, clock: Callable[[], float], runner: ModelRunner, vocab_size: int
    ) -> None:
        self._state, self._clock = state, clock
        self._runner, self._vocab_size = runner, vocab_size

    def update(self, plan: StepPlan, result: StepResult) -> EngineOutputs:
        """Returns what front ends must know.  Rows of another generation are dropped.

        Raises PluginError if the result cannot be.
        """
        state = self._state
        if state.steady is not None and state.steady.made(plan):
            outputs = state.steady.absorb(plan, result)
            if outputs is not None:
                return outputs
            state.steady = None
        check_whole(self._runner, plan, result, state.kv.pool.num_pages, self._vocab_size)
        state.done_step = plan.step_id
        if len(result.invalid_pages):
            for slot in state.kv.invalidate(result.invalid_pages.tolist()):
                state.preempt(slot, self._clock())
        progress = self._begin(plan, result)
        some = state.slots.scored.any()  # else no row is looked at
        scored = progress.live & state.slots.scored[plan.slots] if some else None
        check_given(self._runner, plan, result, progress.live, scored)
        if state.watched or result.attachments:
            self._absorb(plan, result, progress)
        self._count(plan, result, progress)
        self._append(plan, result, progress)
        prompt = self._prompt_logprobs(plan, result, progress)
        self._end_scored(plan, result, progress)
        for row, sentence in progress.errors.items():
            if progress.live[row]:
                progress.ended[row] = ("error", None, sentence)
        self._next_drafts(plan, result, progress)
        self._commit(plan, progress)
        spoken = progress.taken > 0
        if progress.ended or prompt:
            spoken[[*progress.ended, *(part.row for part in prompt)]] = True
        rows = np.flatnonzero(spoken)
        slots = plan.slots[rows]
        ids, cached = state.slots.ids[slots].tolist(), state.slots.cached[slots]
        for row in progress.ended:
            state.finish(int(plan.slots[row]))
        state.pass_fence()
        return self._outputs(plan, result, progress, prompt, rows, ids, cached)

    def ended(self) -> EngineOutputs:
        """Who ended without a step."""
        state = self._state
        ended, state.ended = state.ended, []
        return EngineOutputs(
            step_id=state.done_step,
            request_ids=tuple(end.request.id for end in ended),
            token_offsets=np.zeros(len(ended) + 1, np.int32),
            finished=tuple(end.finished(row) for row, end in enumerate(ended)),
            cached=np.array([end.request.cached or 0 for end in ended], np.int32),
            stats=state.stats(),
        )

    def live(self, plan: StepPlan) -> tuple[npt.NDArray[np.bool_], list[Request | None]]:
        """Rows whose request still owns its slot, and the request of each; None for others."""
        table = self._state.slots
        live = table.generation[plan.slots] == plan.generations
        requests = [
            table.requests[slot] if alive else None
            for slot, alive in zip(plan.slots.tolist(), live.tolist(), strict=True)
        ]
        return live, requests

    def _begin(self, plan: StepPlan, result: StepResult) -> _Progress:
        live = self._state.slots.generation[plan.slots] == plan.generations
        taken = np.zeros(len(live), np.int64)
        return _Progress(live, bool(live.all()), taken, faults_by_row(self._runner, result))

    def _absorb(self, plan: StepPlan, result: StepResult, progress: _Progress) -> None:
        """Participants see the result.  Requests that they fail end with this step."""
        state = self._state
        requests = self.live(plan)[1]
        state.hub.absorb(result, requests)
        row_of = {request.id: row for row, request in enumerate(requests) if request is not None}
        for request, sentence in state.hub.take_failed():  # all of live rows: only they were shown
            progress.errors.setdefault(row_of[request.id], sentence)

    def _request(self, plan: StepPlan, progress: _Progress, row: int) -> Request | None:
        return self._state.slots.requests[plan.slots[row]] if progress.live[row] else None

    def _count(self, plan: StepPlan, result: StepResult, progress: _Progress) -> None:
        """Drafts that were refused were computed in vain."""
        table, live = self._state.slots, progress.live
        slots = plan.slots if progress.all_live else plan.slots[live]
        ends = plan.computed + plan.num_new
        if self._state.config.max_drafts:
            refused = plan.draft_counts.astype(np.int64)
            if len(result.accepted):
                refused -= result.accepted.astype(np.int64)  # of any kind of integers
            if plan.draft_counts.any():
                counts = plan.draft_counts[live]
                self._state.counters.add_drafts(counts, counts - refused[live])
            table.planned[slots] -= refused[live]
            ends = ends - refused
        table.in_flight[slots] -= 1
        table.confirmed[slots] = ends if progress.all_live else ends[live]

    def _append(self, plan: StepPlan, result: StepResult, progress: _Progress) -> None:
        """Take tokens one by one, as if each had come in a step of its own, so that several
        in one step end a request exactly where single ones would."""
        table = self._state.slots
        counts = np.diff(result.token_offsets)
        starts = result.token_offsets[:-1]
        open_rows = progress.live & (counts > 0)
        if progress.errors:
            open_rows[list(progress.errors)] = False  # what came with an error means nothing
        most = int(counts.max(initial=0))
        for number in range(most):
            rows = np.flatnonzero(open_rows & (counts > number))
            if not len(rows):
                break
            slots = plan.slots[rows]
            tokens = result.token_ids[starts[rows] + number]
            before = table.length[slots]
            table.tokens[slots, before] = tokens
            table.length[slots] = before + 1
            progress.taken[rows] += 1
            stops = table.stops(slots, tokens)
            stops &= before >= table.min_length[slots]
            full = before + 1 >= table.limit[slots]
            for index in np.flatnonzero(stops | full).tolist():
                row = int(rows[index])
                stop = bool(stops[index])
                token = int(tokens[index]) if stop else None
                progress.ended[row] = ("stop" if stop else "length", token, None)
                open_rows[row] = False
        # One token was expected of each row that wanted logits; more may have come.
        if most > 1:
            extra = progress.live & (progress.taken > 1)
            table.known[plan.slots[extra]] += progress.taken[extra] - 1

    def _end_scored(self, plan: StepPlan, result: StepResult, progress: _Progress) -> None:
        """Requests without output (scored or pooled) end when their prompt is computed."""
        table = self._state.slots
        slots = plan.slots
        if plan.wants_logits.all():
            return
        done = progress.live & (table.length[slots] >= table.limit[slots])
        done &= table.confirmed[slots] >= table.cap[slots]
        for row in np.flatnonzero(done).tolist():
            reason: Literal["stop", "length"] = "stop" if row in result.pooled else "length"
            progress.ended.setdefault(row, (reason, None, None))

    def _prompt_logprobs(
        self, plan: StepPlan, result: StepResult, progress: _Progress
    ) -> list[PromptPart]:
        """What has come of the prompts' log-probabilities."""
        table = self._state.slots
        if not result.prompt_logprobs and not table.unscored.any():
            return []
        sound = progress.live.copy()
        sound[list(progress.errors)] = False  # what came with an error means nothing
        parts = prompt_parts(self._runner, plan, result, table, sound, self._vocab_size)
        check_scored(self._runner, plan, table, sound)
        return parts

    def _next_drafts(self, plan: StepPlan, result: StepResult, progress: _Progress) -> None:
        if not len(result.draft_ids):
            return
        for row in np.flatnonzero(progress.live & (progress.taken > 0)).tolist():
            first, last = result.draft_offsets[row], result.draft_offsets[row + 1]
            slot = int(plan.slots[row])
            if self._state.slots.in_flight[slot] == 0:
                self._state.slots.set_drafts(slot, result.draft_ids[first:last].tolist())

    def _commit(self, plan: StepPlan, progress: _Progress) -> None:
        """Pages that became full get names.  A row with an error has no content to trust; one
        whose cache manager fails ends with an error."""
        state = self._state
        slots, unit = plan.slots, state.kv.unit
        full = state.slots.confirmed[slots] // unit > state.kv.seen[slots] // unit
        rows = np.flatnonzero(progress.live & full)
        if len(rows) and progress.ended:
            bad = [row for row, end in progress.ended.items() if end[0] == "error"]
            rows = rows[~np.isin(rows, bad)]
        if len(rows):
            own = slots[rows].astype(np.int64)
            requests = [state.slots.requests[slot] for slot in own.tolist()]
            confirmed = np.minimum(state.slots.confirmed[own], state.slots.length[own])
            failed = state.kv.commit_many(requests, own, state.slots.tokens, confirmed)
            row_of = dict(zip(own.tolist(), rows.tolist(), strict=True)) if failed else {}
            for slot, error in failed.items():
                logger.error("%s", error, exc_info=error)
                progress.ended[row_of[slot]] = ("error", None, in_one_line(error))

    def _outputs(
        self,
        plan: StepPlan,
        result: StepResult,
        progress: _Progress,
        prompt: list[PromptPart],
        rows: Rows,
        ids: list[str],
        cached: npt.NDArray[np.int32],
    ) -> EngineOutputs:
        state = self._state
        place = (
            {row: index for index, row in enumerate(rows.tolist())}
            if progress.ended or prompt
            else {}
        )
        outside, state.ended = state.ended, []
        if outside:
            ids = ids + [end.request.id for end in outside]
            more = np.array([end.request.cached or 0 for end in outside], np.int32)
            cached = np.concatenate([cached, more])
        offsets = np.zeros(len(rows) + len(outside) + 1, np.int32)
        np.cumsum(progress.taken[rows], out=offsets[1 : len(rows) + 1])
        if outside:
            offsets[len(rows) + 1 :] = offsets[len(rows)]
        kept = taken_tokens(result, progress.taken)
        logprobs, logprob_tokens = taken_logprobs(result, kept)
        finished = [
            Finished(row=int(place[row]), reason=reason, stop=stop, error=error)
            for row, (reason, stop, error) in progress.ended.items()
        ]
        finished += [end.finished(len(rows) + index) for index, end in enumerate(outside)]
        return EngineOutputs(
            step_id=plan.step_id,
            request_ids=tuple(ids),
            token_offsets=offsets,
            token_ids=result.token_ids if kept is None else result.token_ids[kept],
            logprobs=logprobs,
            logprob_tokens=logprob_tokens,
            prompt_logprobs=tuple(
                PromptPart(row=int(place[p.row]), start=p.start, logprobs=p.logprobs)
                for p in prompt
            ),
            pooled=tuple(
                Pooled(row=place[row], vector=vector)
                for row, vector in result.pooled.items()
                if progress.ended.get(row, ("",))[0] == "stop"
            ),
            finished=tuple(finished),
            cached=cached,
            waited=state.slots.waited[plan.slots[rows]],
            num_computed=plan.num_tokens,
            stats=state.stats(),
        )
