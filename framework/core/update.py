"""What a finished step changes: tokens are appended, requests end, pages get names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from framework.contracts.messages import EngineOutputs, Finished, PromptPart
from framework.errors import IntegrityError

if TYPE_CHECKING:
    from framework.contracts.step import Logprobs, StepPlan, StepResult
    from framework.core.request import Request
    from framework.core.state import CoreState

Rows = npt.NDArray[np.int64]


@dataclass(slots=True)
class _Progress:
    """live: rows whose request still owns the slot.  taken: tokens accepted per row.
    ended: row -> (reason, stop id, error)."""

    live: npt.NDArray[np.bool_]
    all_live: bool
    taken: Rows
    ended: dict[int, tuple[Literal["stop", "length", "error"], int | None, str | None]] = field(
        default_factory=dict
    )


class Updater:
    """Applies results to a `CoreState`."""

    def __init__(self, state: CoreState, clock: Callable[[], float]) -> None:
        self._state = state
        self._clock = clock

    def update(self, plan: StepPlan, result: StepResult) -> EngineOutputs:
        """Returns what front ends must know.  Rows of another generation are dropped."""
        state = self._state
        _check_echo(plan, result)
        if state.steady is not None and state.steady.made(plan):
            outputs = state.steady.absorb(plan, result)
            if outputs is not None:
                return outputs
            state.steady = None
        state.done_step = plan.step_id
        if len(result.invalid_pages):
            for slot in state.kv.invalidate(result.invalid_pages.tolist()):
                state.preempt(slot, self._clock())
        progress = self._begin(plan)
        if state.hub.any:
            state.hub.absorb(result, self.live(plan)[1])
        self._count(plan, result, progress)
        self._append(plan, result, progress)
        prompt = self._prompt_logprobs(plan, result, progress)
        self._end_scored(plan, progress)
        for row, sentence in result.errors.items():
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

    def live(self, plan: StepPlan) -> tuple[npt.NDArray[np.bool_], list[Request | None]]:
        """Rows whose request still owns its slot, and the request of each; None for others."""
        table = self._state.slots
        live = table.generation[plan.slots] == plan.generations
        requests = [
            table.requests[slot] if alive else None
            for slot, alive in zip(plan.slots.tolist(), live.tolist(), strict=True)
        ]
        return live, requests

    def _begin(self, plan: StepPlan) -> _Progress:
        live = self._state.slots.generation[plan.slots] == plan.generations
        return _Progress(live, bool(live.all()), np.zeros(len(live), np.int64))

    def _request(self, plan: StepPlan, progress: _Progress, row: int) -> Request | None:
        return self._state.slots.requests[plan.slots[row]] if progress.live[row] else None

    def _count(self, plan: StepPlan, result: StepResult, progress: _Progress) -> None:
        """Drafts that were refused were computed in vain."""
        table, live = self._state.slots, progress.live
        slots = plan.slots if progress.all_live else plan.slots[live]
        ends = plan.computed + plan.num_new
        if self._state.config.max_drafts:
            refused = np.zeros(len(live), np.int64) + plan.draft_counts
            if len(result.accepted):
                refused -= result.accepted
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
        if result.errors:
            open_rows[list(result.errors)] = False  # what came with an error means nothing
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
            stops = (table.stop_ids[slots] == tokens[:, None]).any(axis=1)
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

    def _end_scored(self, plan: StepPlan, progress: _Progress) -> None:
        """Requests without output (max_tokens=0) end when their prompt is computed."""
        table = self._state.slots
        slots = plan.slots
        if plan.wants_logits.all():
            return
        done = progress.live & ~plan.wants_logits & (table.length[slots] >= table.limit[slots])
        done &= table.confirmed[slots] >= table.cap[slots]
        for row in np.flatnonzero(done).tolist():
            progress.ended.setdefault(row, ("length", None, None))

    def _prompt_logprobs(
        self, plan: StepPlan, result: StepResult, progress: _Progress
    ) -> list[PromptPart]:
        """Kept with the request: recomputed positions are not reported twice."""
        parts = []
        for part in result.prompt_logprobs:
            request = self._request(plan, progress, part.row)
            if request is None:
                continue
            skip = request.prompt_logprobs_done - part.start
            count = len(part.logprobs)
            if skip < 0:
                raise IntegrityError(
                    f"prompt log-probabilities of {request.id} have a gap",
                    expected=f"a part from position {request.prompt_logprobs_done}",
                    found=f"one from {part.start}",
                )
            if skip < count:
                logprobs = part.logprobs.slice(skip, count)
                parts.append(PromptPart(row=part.row, start=part.start + skip, logprobs=logprobs))
                request.prompt_logprobs_done = part.start + count
        return parts

    def _next_drafts(self, plan: StepPlan, result: StepResult, progress: _Progress) -> None:
        if not len(result.draft_ids):
            return
        for row in np.flatnonzero(progress.live & (progress.taken > 0)).tolist():
            first, last = result.draft_offsets[row], result.draft_offsets[row + 1]
            slot = int(plan.slots[row])
            if row not in progress.ended and self._state.slots.in_flight[slot] == 0:
                self._state.slots.set_drafts(slot, result.draft_ids[first:last].tolist())

    def _commit(self, plan: StepPlan, progress: _Progress) -> None:
        """Pages that became full get names.  A row with an error has no content to trust."""
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
            state.kv.commit_many(requests, own, state.slots.tokens, confirmed)

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
        kept = _kept(result, progress)
        logprobs, logprob_tokens = _kept_logprobs(result, kept)
        finished = [
            Finished(row=int(place[row]), reason=reason, stop=stop, error=error)
            for row, (reason, stop, error) in progress.ended.items()
        ]
        finished += [
            Finished(row=len(rows) + index, reason=end.reason, error=end.error)
            for index, end in enumerate(outside)
        ]
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
            finished=tuple(finished),
            cached=cached,
            stats=state.stats(),
        )


def _check_echo(plan: StepPlan, result: StepResult) -> None:
    same = (
        result.step_id == plan.step_id
        and (result.slots is plan.slots or np.array_equal(result.slots, plan.slots))
        and (
            result.generations is plan.generations
            or np.array_equal(result.generations, plan.generations)
        )
        and len(result.token_offsets) == plan.num_rows + 1
    )
    if not same:
        raise IntegrityError(
            "the runner's result does not fit the plan",
            expected=f"step {plan.step_id} with {plan.num_rows} rows, echoed in order",
            found=f"step {result.step_id} with {len(result.slots)} rows",
        )


def _kept(result: StepResult, progress: _Progress) -> npt.NDArray[np.bool_] | None:
    """Which of the result's tokens were taken; None: all."""
    if progress.taken.sum() == len(result.token_ids):
        return None
    counts = np.diff(result.token_offsets)
    number = np.arange(len(result.token_ids)) - np.repeat(result.token_offsets[:-1], counts)
    return number < np.repeat(progress.taken, counts)


def _kept_logprobs(
    result: StepResult, kept: npt.NDArray[np.bool_] | None
) -> tuple[Logprobs | None, npt.NDArray[np.int32]]:
    """Log-probabilities of the tokens that were taken, numbered anew."""
    if result.logprobs is None or kept is None:
        return result.logprobs, result.logprob_tokens
    place = (np.cumsum(kept) - 1).astype(np.int32)
    wanted = np.flatnonzero(kept[result.logprob_tokens])
    return result.logprobs.take(wanted), place[result.logprob_tokens[wanted]]
