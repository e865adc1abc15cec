"""A forward pass of the model for one step, operator by operator."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch

from framework.contracts.model import ForwardContext, Model
from framework_torch.batch import Batch
from framework_torch.cache import KvCache
from framework_torch.context import step_context
from framework_torch.prepare import StepInputs

Computed = tuple[torch.Tensor, tuple[torch.Tensor, ...]]
"""Hidden states [T, H] after the last layer, and after those that the proposer wants."""


class Forward(Protocol):
    """embedded: [T, H] of the tokens of a step.  What is computed may be written over by the next
    step."""

    def prepare(self, inputs: StepInputs) -> None:
        """Tables and metadata of the step that comes next."""
        ...

    def run(self, inputs: StepInputs, embedded: torch.Tensor) -> Computed: ...


class EagerForward:
    """taps: layers after which the proposer wants hidden states."""

    def __init__(
        self, model: Model, cache: KvCache, batch: Batch, device: str, taps: tuple[int, ...]
    ) -> None:
        self._model, self._cache, self._batch = model, cache, batch
        self._device, self._taps = device, taps
        self._context: ForwardContext | None = None
        self._positions = torch.zeros(0)

    def prepare(self, inputs: StepInputs) -> None:
        """See `Forward`."""
        self._context = step_context(inputs, self._cache, self._batch, self._device)
        self._positions = torch.from_numpy(np.ascontiguousarray(inputs.positions)).to(self._device)

    def run(self, inputs: StepInputs, embedded: torch.Tensor) -> Computed:
        """See `Forward`."""
        context, self._context = self._context, None
        assert context is not None, "`prepare` comes first"
        return forward(self._model, embedded, self._positions, context, self._taps)


def forward(
    model: Model,
    hidden: torch.Tensor,
    positions: torch.Tensor,
    context: ForwardContext,
    taps: tuple[int, ...],
) -> Computed:
    """One pass through all layers."""
    if not taps:
        return model.forward(hidden, positions, context), ()
    found: tuple[Any, Any] = model.forward(hidden, positions, context, taps=taps)
    hidden, tapped = found
    return hidden, tuple(tapped[layer] for layer in taps)
