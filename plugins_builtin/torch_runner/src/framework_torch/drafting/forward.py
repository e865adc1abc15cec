"""Forward passes of a proposer's own layers, over the pages of the requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from framework.contracts.model import AttentionLayer
from framework.contracts.step import I32, empty_i32
from framework_torch.batch import Batch, ragged_range
from framework_torch.cache import KvCache
from framework_torch.context import StepContext, step_context
from framework_torch.prepare import StepInputs
from framework_torch.sampler import Sampler


class OwnForward:
    """See `framework.contracts.proposer.DraftForward`.  layers: the proposer's own."""

    def __init__(
        self,
        layers: Mapping[str, AttentionLayer],
        cache: KvCache,
        batch: Batch,
        sampler: Sampler,
        device: str,
    ) -> None:
        self._cache, self._batch, self._sampler, self._device = cache, batch, sampler, device
        self._groups = {cache.layers[name].group for name in layers}

    def context(self, slots: I32, starts: I32, counts: I32) -> StepContext:
        query_starts = np.zeros(len(slots) + 1, np.int32)
        np.cumsum(counts, out=query_starts[1:])
        token_rows = np.repeat(np.arange(len(slots)), counts)
        positions = ragged_range(counts) + starts[token_rows]
        none = np.zeros(len(slots), np.int32)
        inputs = StepInputs(
            rows=np.arange(len(slots)),
            slots=slots,
            num_new=counts,
            computed=starts,
            lengths=(starts + counts).astype(np.int32),
            drafts=none,
            draft_ids=empty_i32(),
            query_starts=query_starts,
            token_rows=token_rows,
            tokens=positions,
            positions=positions,
        )
        return step_context(inputs, self._cache, self._batch, self._device, self._groups)

    def sample(
        self, logits: torch.Tensor, slots: I32, positions: I32, drafts: Sequence[I32]
    ) -> I32:
        out = self._sampler.sample(
            logits,
            slots,
            positions.astype(np.int64),
            self._batch.table,
            extra_history=list(drafts),
        )
        return out.token_ids
