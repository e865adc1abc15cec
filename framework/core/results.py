"""Calls the runner.  It is a plugin: what it does wrong is said with its name."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from framework.contracts.step import StepResult, Ticket, empty_i32
from framework.core.logprobs import (
    Mask,
    are_logprobs,
    flaw_of_lacking,
    flaw_of_newest,
    is_array,
)
from framework.errors import FrameworkError, PluginError
from framework.plugins.blame import expect, failure, unfit
from framework.shown import shown

if TYPE_CHECKING:
    from framework.contracts.model_runner import ModelRunner
    from framework.contracts.step import I32, LateInputs, StepPlan


_NONE = empty_i32()


def submit(runner: ModelRunner, plan: StepPlan) -> Ticket:
    """Start a step.  Raises PluginError."""
    try:
        ticket = runner.submit(plan)
    except FrameworkError:
        raise
    except BaseException as error:
        raise failure(runner, f"starting step {plan.step_id}", error) from error
    return expect(runner, "submit", ticket, Ticket)


def finish(
    runner: ModelRunner, plan: StepPlan, ticket: Ticket, late: LateInputs, vocab_size: int
) -> StepResult:
    """The result of a step, of shapes that fit its plan, with tokens of the vocabulary.  Raises
    PluginError."""
    try:
        answer: object = runner.finish(ticket, late)
    except FrameworkError:
        raise
    except BaseException as error:
        raise failure(runner, f"finishing step {plan.step_id}", error) from error
    result = answer if type(answer) is StepResult else expect(runner, "finish", answer, StepResult)
    try:
        flaw = _flaw_of_echo(plan, result) or _flaw_of_ids(result, vocab_size)
    except Exception as error:  # a field that is not of its type
        raise _untold(runner, plan, error) from error
    if flaw is not None:
        raise _unfit(runner, plan, flaw)
    return result


def check_whole(
    runner: ModelRunner, plan: StepPlan, result: StepResult, num_pages: int, vocab_size: int
) -> None:
    """Raises PluginError if counts of tokens, drafts, rows or pages cannot be.  What `finish` has
    looked at, in every step, is not looked at again."""
    try:
        flaw = (
            _flaw_of_types(result)
            or _flaw_of_tokens(plan, result)
            or _flaw_of_extras(plan, result, num_pages)
            or flaw_of_newest(result, vocab_size)
        )
    except Exception as error:  # a field that is not of its type
        raise _untold(runner, plan, error) from error
    if flaw is not None:
        raise _unfit(runner, plan, flaw)


def check_given(
    runner: ModelRunner, plan: StepPlan, result: StepResult, live: Mask, scored: Mask | None
) -> None:
    """Raises PluginError if a row without an error lacks the token that it wants, or one after
    drafts that were accepted: its request would go on without that token, and never end.  live:
    rows whose request is still there, and read no page that was lost.  scored: those of them that
    want log-probabilities, which may not be lacking either; None: no row does."""
    counts, least = np.diff(result.token_offsets), plan.wants_logits.astype(np.int64)
    if len(result.accepted):
        least = least + result.accepted.astype(np.int64)
    lacking = live & (counts < least)
    failed = list(result.errors)
    if failed:
        lacking[failed] = False
    if lacking.any():
        row = int(np.argmax(lacking))
        flaw = f"{counts[row]} tokens in row {row}, where at least {least[row]} must be"
        raise _unfit(runner, plan, flaw)
    if scored is None:
        return
    scored[failed] = False
    no_scores = flaw_of_lacking(result, scored)
    if no_scores is not None:
        raise _unfit(runner, plan, no_scores)


def _unfit(runner: ModelRunner, plan: StepPlan, flaw: str) -> PluginError:
    expected = f"that of step {plan.step_id} with {plan.num_rows} rows, echoed in order"
    return unfit(runner, "gave a result that does not fit the plan", expected, flaw)


def _untold(runner: ModelRunner, plan: StepPlan, error: Exception) -> PluginError:
    return failure(runner, f"telling the result of step {plan.step_id}", error)


def _flaw_of_echo(plan: StepPlan, result: StepResult) -> str | None:
    """What does not fit; None: nothing.  Costs little where arrays are shared, or none."""
    if result.step_id != plan.step_id:
        return f"step {result.step_id}"
    slots, generations = result.slots, result.generations
    if slots is not plan.slots and not np.array_equal(slots, plan.slots):
        return f"slots {shown(slots)}"
    if generations is not plan.generations and not np.array_equal(generations, plan.generations):
        return f"generations {shown(generations)}"
    offsets, tokens = result.token_offsets, result.token_ids
    for array in (offsets, tokens, result.draft_ids, result.invalid_pages):
        if array is not _NONE and (
            not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind not in "iu"
        ):
            return f"{shown(array)} for an array of integers"
    if len(offsets) != len(plan.slots) + 1 or offsets.item(0) or offsets.item(-1) != len(tokens):
        return f"token_offsets {shown(offsets)} over {len(tokens)} tokens"
    return None


def _flaw_of_ids(result: StepResult, vocab_size: int) -> str | None:
    """Ids outside the vocabulary, which would be kept, named and computed from: looked for by the
    places of the least and of the largest, which costs less than to ask for these."""
    ids = result.token_ids
    if len(ids) and not (ids.item(ids.argmin()) >= 0 and ids.item(ids.argmax()) < vocab_size):
        bad = (ids < 0) | (ids >= vocab_size)
        for row, (start, stop) in enumerate(pairwise(result.token_offsets.tolist())):
            # What comes with an error means nothing.
            if bad[start:stop].any() and row not in result.errors:
                return f"tokens {shown(ids[start:stop])} in row {row}, outside [0, {vocab_size})"
    return None


def _flaw_of_types(result: StepResult) -> str | None:
    """Fields that are not of their types, which would be told to others or fail far from here."""
    for name in ("accepted", "draft_offsets", "logprob_tokens"):
        array = getattr(result, name)
        if array is not _NONE and not is_array(array, "iu"):
            return f"{name} {shown(array)} for an array of integers"
    for name, key, value in _BY_ROW:
        found = getattr(result, name)
        if type(found) is dict and not found:  # in nearly all steps
            continue
        if not isinstance(found, Mapping) or not all(
            _is(k, key) and isinstance(v, value) for k, v in found.items()
        ):
            return f"{name} {shown(found)}"
    if result.logprobs is not None and not are_logprobs(result.logprobs):
        return f"log-probabilities {shown(result.logprobs)}"
    for part in result.prompt_logprobs:
        whole = _is(part.row, _WHOLE) and _is(part.start, _WHOLE) and part.start >= 0
        if not whole or not are_logprobs(part.logprobs):
            return f"prompt log-probabilities {shown(part)}"
    return None


_WHOLE = (int, np.integer)
_BY_ROW = (
    ("errors", _WHOLE, str),
    ("pooled", _WHOLE, np.ndarray),
    ("attachments", (str,), bytes),
)


def _is(value: object, kinds: tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def _flaw_of_tokens(plan: StepPlan, result: StepResult) -> str | None:
    """Rows have at most one token for each draft and one more, if they want any."""
    counts = np.diff(result.token_offsets)
    most = plan.wants_logits + plan.draft_counts
    if (counts < 0).any() or (counts > most).any():
        row = int(np.flatnonzero((counts < 0) | (counts > most))[0])
        return f"{counts[row]} tokens in row {row}, where at most {most[row]} can be"
    accepted = result.accepted
    if len(accepted) and (
        len(accepted) != plan.num_rows or ((accepted < 0) | (accepted > plan.draft_counts)).any()
    ):
        return f"accepted drafts {shown(accepted)} of {shown(plan.draft_counts)}"
    return None


def _flaw_of_extras(plan: StepPlan, result: StepResult, num_pages: int) -> str | None:
    named = [*result.errors, *(part.row for part in result.prompt_logprobs)]
    if any(row not in range(plan.num_rows) for row in named):
        return f"errors or prompt log-probabilities of rows {named[:8]}"
    to_pool = () if plan.rows_to_pool is None else np.flatnonzero(plan.rows_to_pool).tolist()
    if set(result.pooled) - set(to_pool) or set(to_pool) - set(result.pooled) - set(result.errors):
        return f"vectors of rows {sorted(result.pooled)[:8]}, where {to_pool[:8]} were to be pooled"
    for vector in result.pooled.values():
        if not isinstance(vector, np.ndarray) or vector.dtype != np.float32 or vector.ndim != 1:
            return f"{shown(vector)} for a vector of float32"
    if not _in_range(result.invalid_pages, 1, num_pages):
        return f"pages {shown(result.invalid_pages)} as lost, which do not exist"
    if len(result.draft_ids):
        ends = result.draft_offsets
        good = len(ends) == plan.num_rows + 1 and ends[0] == 0 and ends[-1] == len(result.draft_ids)
        counts = np.diff(ends.astype(np.int64))
        if not good or (counts < 0).any():
            return f"draft_offsets {shown(ends)} over {len(result.draft_ids)} drafts"
        if (counts > plan.drafts_wanted).any():
            return f"{counts.max()} drafts of a row, where {plan.drafts_wanted} were wanted"
        # Beyond the vocabulary they are only never accepted.
        if not _in_range(result.draft_ids, 0, 2**31):
            return f"drafts {shown(result.draft_ids)}, which are no token ids"
    return None


def _in_range(values: I32, low: int, high: int) -> bool:
    return not len(values) or bool(values.min() >= low and values.max() < high)
