"""Vectors of prompts, which may come in several steps.

mean   sum[slot] of the hidden states so far
cls    the first hidden state        last   nothing is kept

A prompt whose class is asked for comes whole: who sees later tokens is given all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch

from framework.errors import IntegrityError
from framework_torch.pooling.config import PoolingConfig
from framework_torch.prepare import StepInputs

if TYPE_CHECKING:
    from framework.contracts.pooling import PoolingParams
    from framework.contracts.step import F32, AdmittedRequest, StepPlan


Classify = Callable[[torch.Tensor, bool], torch.Tensor]
"""As `classify` of a model."""


class Pooler:
    """config: where a request says nothing; None: there are no embeddings.  classify: of the
    model, or None.  The core lets nobody ask for what there is not."""

    def __init__(self, config: PoolingConfig | None, classify: Classify | None = None) -> None:
        self._config, self._classify = config, classify
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
            part, length = hidden[starts[index] : starts[index + 1]], int(inputs.lengths[index])
            state = self._state(slot, params, part, length)
            row = int(inputs.rows[index])
            if plan.rows_to_pool is None or not plan.rows_to_pool[row]:
                continue
            vector = self._finished(state, params, length)
            if np.isfinite(vector).all():
                vectors[row] = vector
            else:
                errors[row] = "the model's hidden states are not finite: there is nothing to give"
        return vectors, errors

    def _state(
        self, slot: int, params: PoolingParams, part: torch.Tensor, length: int
    ) -> torch.Tensor:
        if params.task != "classify":
            return self._take(slot, params, part.float())
        if self._classify is None or len(part) != length:
            raise IntegrityError(
                "a prompt cannot be classified",
                expected="a model with classes, and the whole prompt in one step",
                found=f"{len(part)} of {length} tokens",
            )
        return self._classify(part, params.use_activation is not False)

    def _kind(self, params: PoolingParams) -> str:
        if params.pooling is not None:
            return params.pooling
        return self._own().pooling

    def _own(self) -> PoolingConfig:
        if self._config is None:
            raise IntegrityError("an embedding is wanted of a model that makes none")
        return self._config

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
        vector = state
        if params.task == "embed":
            vector = state / length if self._kind(params) == "mean" else state
            vector = vector[: params.dimensions]
            if self._own().normalize if params.normalize is None else params.normalize:
                vector = torch.nn.functional.normalize(vector, dim=0)
        found: F32 = vector.cpu().numpy().astype(np.float32, copy=True)
        return found
