"""Log-probabilities that a runner gives: what cannot be, what is lacking, what is new of a prompt.

Front ends read them by the token that was sampled and tell them to clients: an entry that is not
its own token's, or none at all, would be found far from here, by somebody who is not at fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from framework.contracts.base import name_of
from framework.contracts.messages import PromptPart
from framework.contracts.step import Logprobs
from framework.plugins.blame import unfit
from framework.shown import printable, shown

if TYPE_CHECKING:
    from framework.contracts.model_runner import ModelRunner
    from framework.contracts.step import StepPlan, StepResult
    from framework.core.slots import SlotTable

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def are_logprobs(value: object) -> bool:
    """Ragged as it must be: of each token at least its own entry."""
    if not isinstance(value, Logprobs) or not is_array(value.values, "f"):
        return False
    if not all(is_array(array, "iu") for array in (value.offsets, value.ids, value.ranks)):
        return False
    ends, total = value.offsets.astype(np.int64), len(value.values)
    whole = len(ends) == len(value.ranks) + 1 and ends[0] == 0 and ends[-1] == total
    return bool(whole and len(value.ids) == total and (ends[1:] > ends[:-1]).all())


def is_array(value: object, kinds: str) -> bool:
    """Of one dimension, its numbers of one of these kinds of numpy's."""
    return isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in kinds


def flaw_of_newest(result: StepResult, vocab_size: int) -> str | None:
    """What cannot be of the log-probabilities of the newest tokens; what comes with an error means
    nothing."""
    logprobs, place = result.logprobs, result.logprob_tokens
    if logprobs is None:
        return f"no log-probabilities, of tokens {shown(place)}" if len(place) else None
    tokens: Rows = place.astype(np.int64)
    inside = (tokens >= 0) & (tokens < len(result.token_ids))
    if len(tokens) != len(logprobs) or not inside.all() or (np.diff(tokens) <= 0).any():
        return f"{len(logprobs)} log-probabilities, of tokens {shown(place)}"
    if result.errors:
        sound = np.flatnonzero(~np.isin(_rows_of(result, tokens), list(result.errors)))
        logprobs, tokens = logprobs.take(sound), tokens[sound]
    return _flaw_of_ids(logprobs, result.token_ids[tokens], vocab_size)


def _flaw_of_ids(logprobs: Logprobs, tokens: npt.NDArray[np.integer], vocab: int) -> str | None:
    ids = logprobs.ids
    if len(ids) and not (ids.min() >= 0 and ids.max() < vocab):
        return f"log-probabilities of ids {shown(ids)}, outside [0, {vocab})"
    first = ids[logprobs.offsets[:-1]]
    if not np.array_equal(first, tokens):
        return f"log-probabilities that begin with {shown(first)}, of tokens {shown(tokens)}"
    return None


def _rows_of(result: StepResult, tokens: Rows) -> Rows:
    """The row of each token."""
    ends: Rows = result.token_offsets[1:].astype(np.int64)
    return np.searchsorted(ends, tokens, side="right")


def faults_by_row(runner: ModelRunner, result: StepResult) -> dict[int, str]:
    """Rows that end with an error: those that the runner names, and those of which it gives numbers
    that are none.  These have no place in a response, and others of the step may be sound."""
    if not (result.errors or result.logprobs or result.prompt_logprobs or result.pooled):
        return {}  # in most steps
    faults = {row: printable(sentence) for row, sentence in result.errors.items()}
    wrong: list[int] = []
    if result.logprobs is not None:
        entries = np.flatnonzero(_no_numbers(result.logprobs.values))
        tokens = np.searchsorted(result.logprobs.offsets, entries, side="right") - 1
        wrong += _rows_of(result, result.logprob_tokens[tokens].astype(np.int64)).tolist()
    for part in result.prompt_logprobs:
        wrong += [part.row] if _no_numbers(part.logprobs.values).any() else []
    wrong += [row for row, vector in result.pooled.items() if not np.isfinite(vector).all()]
    for row in wrong:
        numbers = "log-probabilities or a vector"
        faults.setdefault(row, f"plugin {name_of(runner)} gave {numbers} with NaN or infinity")
    return faults


def _no_numbers(values: npt.NDArray[np.floating]) -> Mask:
    """-inf is one: that of a token that cannot be."""
    wrong: Mask = np.isnan(values) | np.isposinf(values)
    return wrong


def flaw_of_lacking(result: StepResult, asked: Mask) -> str | None:
    """A token without log-probabilities in a row, of `asked`, whose request wants them."""
    if not asked.any():
        return None
    there = np.zeros(len(result.token_ids), np.bool_)
    there[result.logprob_tokens] = True
    lacking = asked[_rows_of(result, np.arange(len(there)))] & ~there
    if not lacking.any():
        return None
    return f"no log-probabilities of token {int(np.argmax(lacking))}, which are wanted"


def prompt_parts(
    runner: ModelRunner,
    plan: StepPlan,
    result: StepResult,
    table: SlotTable,
    sound: Mask,
    vocab_size: int,
) -> list[PromptPart]:
    """What is new of the prompts' log-probabilities.  Kept with the request: recomputed positions
    are not reported twice.  sound: rows whose request is still there, without an error.

    Raises PluginError for a part that cannot be.
    """
    parts = []
    for part in result.prompt_logprobs:
        row, start = int(part.row), int(part.start)  # of any kind of integers
        slot = plan.slots[row]
        request = table.requests[slot]
        if request is None or not sound[row]:
            continue
        skip = request.prompt_logprobs_done - start
        count = len(part.logprobs)
        if skip < 0 or start + count > request.num_prompt:
            last, done = request.num_prompt - 1, request.prompt_logprobs_done
            expected = f"a part from position {done} of {request.id}, to {last} at most"
            found = f"one of {count} from {start}"
            what = "gave prompt log-probabilities with a gap, or past the end"
            raise unfit(runner, what, expected, found)
        own = table.tokens[slot, start : start + count]
        flaw = _flaw_of_ids(part.logprobs, own, vocab_size)
        if flaw is not None:
            expected = f"those of the prompt of {request.id}, from position {start}"
            raise unfit(runner, "gave prompt log-probabilities that cannot be", expected, flaw)
        if skip < count:
            logprobs = part.logprobs.slice(skip, count)
            parts.append(PromptPart(row=row, start=start + skip, logprobs=logprobs))
            request.prompt_logprobs_done = start + count
            table.unscored[slot] = request.prompt_logprobs_done < request.num_prompt
    return parts


def check_scored(runner: ModelRunner, plan: StepPlan, table: SlotTable, sound: Mask) -> None:
    """Raises PluginError if log-probabilities of a prompt are lacking that is computed: nobody
    would give them later.  sound: as in `prompt_parts`."""
    slots = plan.slots[sound]
    computed = table.confirmed[slots] >= np.minimum(table.num_prompt[slots], table.cap[slots])
    lacking = slots[computed & table.unscored[slots]]
    if len(lacking):
        request = table.requests[lacking[0]]
        assert request is not None
        what = "did not give all log-probabilities of a prompt that it has computed"
        expected = f"those of {request.id} to position {request.num_prompt - 1}"
        raise unfit(runner, what, expected, f"those before {request.prompt_logprobs_done}")
