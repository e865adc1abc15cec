"""Log-probabilities of chosen tokens, and of the best beside them.

The mode (`framework.contracts.sampling.LogprobsMode`) says which logits count (raw: before
anything changed them; processed: those the token was picked from, over the temperature) and
whether they are normalised.
"""

from __future__ import annotations

from typing import get_args

import numpy as np
import numpy.typing as npt
import torch

from framework.contracts.sampling import LogprobsMode
from framework.contracts.step import F32, I32, Logprobs
from framework.errors import ConfigError
from framework_torch.sampler.rows import on_device, take, which

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]


MODES = get_args(LogprobsMode)


class LogprobsStage:
    """The two ends of the chain for the rows in `asked` (int64, ascending)."""

    def __init__(self, mode: str) -> None:
        if mode not in MODES:
            raise ConfigError("logprobs_mode is unknown", expected=f"one of {MODES}", found=mode)
        self.processed = mode.startswith("processed")
        self._normalised = mode.endswith("logprobs")

    def before(self, logits: torch.Tensor, asked: I64) -> torch.Tensor | None:
        """What must be saved of the raw logits, before the chain changes them."""
        if self.processed or not len(asked):
            return None
        return take(logits, asked).clone()

    def after(
        self, logits: torch.Tensor, z: torch.Tensor | None, asked: I64, drawn: I64, origin: F64
    ) -> torch.Tensor:
        """The logits that the tokens of `asked` were picked from, float32 [len(asked), V].

        z: [M, V] of the rows `drawn`, relative to `origin`, float64 [N]: the maximum of each
        row over its temperature.  It is added again where logits are asked for; in
        log-probabilities it cancels, and adding it would only cost digits.
        """
        values = logits.index_select(0, on_device(asked, logits))
        both = np.intersect1d(asked, drawn)
        if z is None or not len(both):
            return values
        restored = z.index_select(0, on_device(np.searchsorted(drawn, both), z))
        if not self._normalised:
            limit = np.finfo(np.float32).max
            shift = origin[both].clip(-limit, limit).astype(np.float32)
            restored += on_device(shift, z).unsqueeze(1)
        values.index_copy_(0, on_device(np.searchsorted(asked, both), z), restored)
        return values

    def values(self, logits: torch.Tensor) -> tuple[torch.Tensor, npt.NDArray[np.bool_]]:
        """float32 [T, V] as the mode has them, and which rows hold neither NaN nor +inf."""
        # Row by row in torch, so a row's bits do not depend on the rows beside it.
        values = torch.log_softmax(logits, dim=1) if self._normalised else logits
        return values, np.isfinite(values.amax(1).cpu().numpy())


def gather_logprobs(values: torch.Tensor, tokens: I64, best: I64) -> Logprobs:
    """Entries of T tokens: the token itself, then the `best` ones.

    values: float32 [T, V] without NaN, log-probabilities or logits.  tokens: int64 [T].
    best: int64 [T], at most V.  Ties go to the lowest id.  -inf is given as the most negative
    float32: infinities have no place in JSON.
    """
    count, width = len(tokens), int(best.max(initial=0)) + 1
    ids, chosen = np.zeros((count, width), np.int32), np.zeros((count, width), np.float32)
    own = values.gather(1, on_device(tokens, values).unsqueeze(1))
    ranks = (values > own).sum(1).add_(1)
    ids[:, 0], chosen[:, 0] = tokens, own.squeeze(1).cpu().numpy()
    for k in np.unique(best[best > 0]).tolist():
        rows = which(best == k)
        ids[rows, 1 : k + 1], chosen[rows, 1 : k + 1] = _best(take(values, rows), k)
    used = np.arange(width) <= best[:, None]
    return Logprobs(
        offsets=np.concatenate(([0], np.cumsum(best + 1))).astype(np.int32),
        ids=ids[used],
        values=np.maximum(chosen[used], np.finfo(np.float32).min),
        ranks=ranks.cpu().numpy().astype(np.int32),
    )


def _best(values: torch.Tensor, k: int) -> tuple[I32, F32]:
    """Ids and values [T, k] of the k best, best first, lowest id first among equals."""
    if k == values.shape[1]:
        top, ids = values.sort(dim=1, descending=True, stable=True)
        return ids.cpu().numpy().astype(np.int32), top.cpu().numpy()
    top, ids = values.topk(k, dim=1)
    # topk promises nothing about ties.  Within the k best an order by id is enough; where a
    # tie crosses the border (rare), the row is sorted whole.
    crossing = torch.nonzero((values >= top[:, -1:]).sum(1) > k).squeeze(1)
    if len(crossing):
        whole = values[crossing].sort(dim=1, descending=True, stable=True)
        top[crossing], ids[crossing] = whole.values[:, :k], whole.indices[:, :k]
    host, host_ids = top.cpu().numpy(), ids.cpu().numpy().astype(np.int32)
    order = np.lexsort((host_ids, -host), axis=1)
    return np.take_along_axis(host_ids, order, 1), np.take_along_axis(host, order, 1)
