"""Adapters' changes of what a linear map gave: several in one call of the part in C."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch  # before _native, which looks for torch's thread pool when it is imported

from framework_cpu_paged import _native
from framework_cpu_paged.packed_checks import check_places, check_rows, refuse


@dataclass(frozen=True, slots=True)
class LowRank:
    """An update with packed weights; see `packed_answer.OPS`."""

    down: object
    up: object
    inputs: int
    outputs: int

    def __call__(self, x: torch.Tensor, y: torch.Tensor, at: torch.Tensor | None) -> None:
        self.together(x, y, ((self, at),))

    @staticmethod
    def together(
        x: torch.Tensor, y: torch.Tensor, updates: Sequence[tuple[LowRank, torch.Tensor | None]]
    ) -> None:
        """One or more of the same sizes, for rows that are all different."""
        own = updates[0][0]
        rows = check_rows("y", y, own.outputs, check_rows("x", x, own.inputs))
        width, height = y.stride()[1], y.stride()[0]
        if width != 1:
            raise refuse("y", "numbers of a row side by side, since it is changed", y.stride())
        if x.stride(-1) != 1:
            x = x.contiguous()
        _native.run_low_ranks(
            tuple([_read(own, update, at, rows) for update, at in updates]),
            x.data_ptr(),
            x.stride(0),
            y.data_ptr(),
            height,
            rows,
            torch.get_num_threads(),
        )


def _read(
    first: LowRank, update: LowRank, at: torch.Tensor | None, rows: int
) -> tuple[object, object, int, int]:
    if update.inputs != first.inputs or update.outputs != first.outputs:
        sizes = [first.inputs, first.outputs], [update.inputs, update.outputs]
        raise refuse("set of updates", f"inputs and outputs {sizes[0]}", sizes[1])
    if at is None:
        return update.down, update.up, 0, rows
    return update.down, update.up, at.data_ptr(), check_places(at)
