"""Repetition, presence and frequency penalties, from the true history at every step.

Only (row, token) pairs that occur in a history are touched, so the cost follows the length
of the sequences and not the vocabulary, and rows without a penalty cost nothing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from framework.contracts.step import I32
from framework_torch.sampler.history import History
from framework_torch.sampler.parameters import SlotParameters
from framework_torch.sampler.rows import on_device, which

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]


def apply_penalties(
    logits: torch.Tensor, params: SlotParameters, slots: I32, history: History
) -> None:
    """Change logits float32 [N, V] in place: repetition first, then the other two."""
    repetition = params.repetition[slots]
    rows = which(repetition != 1.0)
    if len(rows):
        _repetition(logits, repetition, *_pairs(rows, [history.whole(row) for row in rows], logits))
    presence, frequency = params.presence[slots], params.frequency[slots]
    rows = which((presence != 0.0) | (frequency != 0.0))
    if len(rows):
        pairs = _pairs(rows, [history.outputs(row) for row in rows], logits)
        _presence_and_frequency(logits, presence, frequency, *pairs)


def _pairs(rows: I64, tokens: list[I32], logits: torch.Tensor) -> tuple[I64, I64]:
    """Row and token of every occurrence; ids beyond the vocabulary have no logit."""
    row = np.repeat(rows, [len(part) for part in tokens])
    token = np.concatenate(tokens).astype(np.int64)
    inside = (token >= 0) & (token < logits.shape[1])
    return row[inside], token[inside]


def _repetition(logits: torch.Tensor, penalty: F64, row: I64, token: I64) -> None:
    """x / r for x > 0, x * r for x < 0 (Keskar et al. 2019, and the sign of later engines).

    A token that occurs twice is written twice with the same value, so nothing need be unique.
    float64 and the clamp keep any finite r from making inf or NaN out of a finite logit.
    """
    where = on_device(row, logits), on_device(token, logits)
    old = logits[where]
    exact, factor = old.double(), on_device(penalty[row], logits)
    new = torch.where(exact > 0, exact / factor, exact * factor)
    limit = torch.finfo(torch.float32).max
    logits[where] = torch.where(old.isfinite(), new.clamp(-limit, limit).float(), old)


def _presence_and_frequency(
    logits: torch.Tensor, presence: F64, frequency: F64, row: I64, token: I64
) -> None:
    """x - presence - frequency * count, for each token that occurs."""
    vocab = logits.shape[1]
    keys, counts = np.unique(row * vocab + token, return_counts=True)
    row, token = keys // vocab, keys % vocab
    loss = on_device(presence[row] + frequency[row] * counts, logits)
    where = on_device(row, logits), on_device(token, logits)
    logits[where] = (logits[where].double() - loss).float()
