"""Vectors of prompts, which may come in several steps.

mean   sum[slot] of the hidden states so far
cls    the first hidden state        last   nothing is kept
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from framework_torch.pooling.config import PoolingConfig
from framework_torch.prepare import StepInputs

if TYPE_CHECKING:
    from framework.contracts.pooling import PoolingParams
    from framework.contracts.step import F32, AdmittedRequest, StepPlan


class Pooler:
    """config: where a request says nothing."""

    def __init__(self, config: PoolingConfig) -> None:
        self._config = config
        self._params: dict[int, PoolingParams] = {}
        self._kept: dict[int, torch.Tensor] = {}

    def admit(self, request: AdmittedRequest) -> bool:
        """Take over `request.slot`; False if the request is not to be pooled."""
        self.drop(request.slot)
        if request.pooling is not None:
            self._params[request.slot] = request.pooling
        return request.pooling is not None

    def drop(self, slot: int) -> bool:
        """Forget the slot; False if it was not here."""
        self._kept.pop(slot, None)
        return self._params.pop(slot, None) is not None

    def pool(
        self, plan: StepPlan, inputs: StepInputs, hidden: torch.Tensor
    ) -> tuple[dict[int, F32], dict[int, str]]:
        """(plan row -> vector, plan row -> why there is none).  hidden: [T, H] of the step."""
        vectors: dict[int, F32] = {}
        errors: dict[int, str] = {}
        if not self._params:
            return vectors, errors
        starts = inputs.query_starts.tolist()
        for index, slot in enumerate(inputs.slots.tolist()):
            params = self._params.get(slot)
            if params is None:
                continue
            state = self._take(slot, params, hidden[starts[index] : starts[index + 1]].float())
            row = int(inputs.rows[index])
            if plan.rows_to_pool is None or not plan.rows_to_pool[row]:
                continue
            vector = self._finished(state, params, int(inputs.lengths[index]))
            if np.isfinite(vector).all():
                vectors[row] = vector
            else:
                errors[row] = "the model's hidden states are not finite: there is no embedding"
        return vectors, errors

    def _kind(self, params: PoolingParams) -> str:
        return self._config.pooling if params.pooling is None else params.pooling

    def _take(self, slot: int, params: PoolingParams, part: torch.Tensor) -> torch.Tensor:
        """What there is of a prompt with the hidden states [n, H] of this step."""
        kind, kept = self._kind(params), self._kept.get(slot)
        if kind == "last":
            return part[-1]
        if kind == "mean":
            new = part.sum(0)
            kept = new if kept is None else kept + new
        elif kept is None:
            kept = part[0].clone()
        self._kept[slot] = kept
        return kept

    def _finished(self, state: torch.Tensor, params: PoolingParams, length: int) -> F32:
        vector = state / length if self._kind(params) == "mean" else state
        vector = vector[: params.dimensions]
        if self._config.normalize if params.normalize is None else params.normalize:
            vector = torch.nn.functional.normalize(vector, dim=0)
        found: F32 = vector.cpu().numpy().astype(np.float32, copy=True)
        return found
