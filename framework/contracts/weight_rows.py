"""Weights that are made where they are read, which kernels may take a few rows at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, cast

from framework.contracts.base import handed

if TYPE_CHECKING:
    import torch


@handed
class WeightRows(Protocol):
    """A weight that is made where it is read: reading it some rows at a time, a kernel that packs
    it needs no memory for the whole.

    shape: of the whole, [rows, columns].  dtype: of its numbers.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> torch.dtype: ...

    def rows(self, start: int, stop: int) -> torch.Tensor:
        """Rows [start, stop), 0 <= start < stop, on the device of the query, with the numbers of a
        row side by side.

        To be read only, and only until the next call.  Rows may be asked for again, which may
        cost as much again.  Raises ModelError where they cannot be read.
        """
        ...

    def whole(self) -> torch.Tensor:
        """All of it; the model holds it from then on, until its use is bound to something else."""
        ...


def as_tensors(weights: Mapping[str, torch.Tensor | WeightRows]) -> dict[str, torch.Tensor]:
    """The same with all of them as a whole."""
    return {
        name: cast("torch.Tensor", getattr(weight, "whole", lambda own=weight: own)())
        for name, weight in weights.items()
    }
