"""From logits to the best token; from weights to tokens: one uniform number and the inverse of
the cumulative weights."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from framework.core.random import uniforms
from framework_torch.sampler.rows import on_device

I64 = npt.NDArray[np.int64]
F32 = npt.NDArray[np.float32]


def largest(logits: torch.Tensor) -> tuple[I64, F32]:
    """(index of the largest logit, that logit) of each row of float32 [N, V]; the first of equal
    ones, and NaN where there is one.

    On the CPU by numpy, whose search takes a third of the time of torch's.
    """
    if logits.device.type == "cpu":
        values = logits.numpy()
        index = values.argmax(axis=1)
        return index, values[np.arange(len(values)), index]
    best, picked = logits.max(dim=1)
    return picked.cpu().numpy(), best.cpu().numpy()


def draw(mass: torch.Tensor, seeds: npt.NDArray[np.uint64], positions: I64) -> torch.Tensor:
    """One token a row, int64 [M], with probability proportional to mass int64 [M, V] >= 0.

    The number is keyed by (seed, position) and the cumulative sum runs in the order of the
    vocabulary over integers: the token depends on its own row, seed and position alone.
    Each row needs a positive sum below 2^53.
    """
    cumulative = mass.cumsum(1)
    total = cumulative[:, -1]
    # u <= 1 - 2^-53, and for such u the product rounds to less than the total, whatever that is.
    target = (total.double() * on_device(uniforms(seeds, positions), mass)).long()
    return torch.searchsorted(cumulative, target.unsqueeze(1), right=True).squeeze(1)
