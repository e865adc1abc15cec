"""Small helpers to work on some rows of a matrix, without a copy when it is all of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

I64 = npt.NDArray[np.int64]


def which(flags: npt.NDArray[np.bool_]) -> I64:
    """Indices of the rows that are flagged, int64."""
    return np.flatnonzero(flags).astype(np.int64, copy=False)


def on_device(array: npt.NDArray[np.generic], like: torch.Tensor) -> torch.Tensor:
    """`array` as a tensor beside `like`; shares memory on the CPU."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(like.device)


def take(matrix: torch.Tensor, rows: I64) -> torch.Tensor:
    """matrix[rows] for ascending rows: the matrix itself if they are all, else a copy."""
    if len(rows) == len(matrix):
        return matrix
    return matrix.index_select(0, on_device(rows, matrix))


def put(matrix: torch.Tensor, rows: I64, part: torch.Tensor) -> None:
    """Undo `take` after `part` was changed in place; nothing to do if it was the matrix."""
    if part is not matrix:
        matrix.index_copy_(0, on_device(rows, matrix), part)
