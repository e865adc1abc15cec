"""Log-probabilities of prompt tokens.

    step computes tokens    |computed ......... computed + n|
    and so scores positions  |computed + 1 ..... computed + n|  (below num_prompt)

Position i is scored by the logits after token i - 1, so a chunk also scores the first token
of the next one, and position 0 has no score.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from framework.contracts.model import Model
from framework.contracts.step import Logprobs, PromptLogprobs
from framework.errors import ModelError
from framework_torch.batch import Batch
from framework_torch.prepare import StepInputs

if TYPE_CHECKING:
    from framework_torch.sampler import Sampler

# Elements of logits that are held at one time: 64 MiB in float32.
PIECE = 1 << 24


def score_prompts(
    inputs: StepInputs, batch: Batch, sampler: Sampler, model: Model, hidden: torch.Tensor
) -> tuple[tuple[PromptLogprobs, ...], dict[int, str]]:
    """(scores of this step's prompt tokens, plan row -> why it has none)."""
    parts, errors = [], {}
    for row in _scored_rows(inputs, batch):
        slot, computed = int(inputs.slots[row]), int(inputs.computed[row])
        first = max(int(batch.prompt_from[slot]), computed + 1)
        stop = min(int(batch.table.num_prompt[slot]), computed + int(inputs.num_new[row]) + 1)
        if first >= stop:
            continue
        targets = batch.table.tokens[slot, first:stop].astype(np.int64)
        begin = int(inputs.query_starts[row]) + first - 1 - computed
        states = hidden[begin : begin + len(targets)]
        try:
            scores = _score(states, targets, batch.prompt_k[slot], sampler, model)
        except ModelError as error:
            errors[int(inputs.rows[row])] = str(error)
            continue
        parts.append(PromptLogprobs(row=int(inputs.rows[row]), start=first, logprobs=scores))
        batch.prompt_from[slot] = stop
    return tuple(parts), errors


def _scored_rows(inputs: StepInputs, batch: Batch) -> list[int]:
    """Rows whose request wants scores; usually none, and then this costs nothing."""
    if not batch.prompt_k:
        return []
    return np.flatnonzero(np.isin(inputs.slots, list(batch.prompt_k))).tolist()


def _score(
    hidden: torch.Tensor, targets: np.ndarray, k: int, sampler: Sampler, model: Model
) -> Logprobs:
    """In pieces: the logits of a long chunk over a large vocabulary would take gigabytes."""
    step = max(1, PIECE // model.vocab_size)
    return join(
        [
            sampler.prompt_logprobs(
                model.logits(hidden[start : start + step]), targets[start : start + step], k
            )
            for start in range(0, len(targets), step)
        ]
    )


def join(parts: list[Logprobs]) -> Logprobs:
    """One after the other."""
    if len(parts) == 1:
        return parts[0]
    counts = np.concatenate([np.diff(part.offsets) for part in parts])
    return Logprobs(
        offsets=np.concatenate(([0], np.cumsum(counts))).astype(np.int32),
        ids=np.concatenate([part.ids for part in parts]),
        values=np.concatenate([part.values for part in parts]),
        ranks=np.concatenate([part.ranks for part in parts]),
    )
