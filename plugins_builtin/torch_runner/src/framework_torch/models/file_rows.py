"""Rows of a parameter out of files."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from framework.contracts.weight_loader import RowWeights


class FileRows:
    """A parameter that lies in files as parts, one below the other.

    parts: name and rows of each.  shape, dtype: of the parameter.
    """

    def __init__(
        self,
        weights: RowWeights,
        parts: Sequence[tuple[str, int]],
        shape: tuple[int, ...],
        dtype: torch.dtype,
    ) -> None:
        self._weights, self._parts = weights, parts
        self.shape, self.dtype = shape, dtype

    def read(self, start: int, stop: int) -> torch.Tensor:
        """Rows [start, stop).  Raises ModelError."""
        found, before = [], 0
        for name, count in self._parts:
            first, last = max(start - before, 0), min(stop - before, count)
            if first < last:
                found.append(self._weights.rows(name, first, last).to(self.dtype))
            before += count
        return found[0] if len(found) == 1 else torch.cat(found)
