"""Adapters' changes of what a linear map gave: several in one call of the part in C."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch  # before _native, which looks for torch's thread pool when it is imported

from framework_cpu_paged import _native
from framework_cpu_paged.packed_checks import check_places, check_rows, refuse

Updates = Mapping[str, Sequence[tuple[Any, "torch.Tensor | None"]]]
"""Of several linear maps, by the name of their weights."""
NO_UPDATES: Updates = {}
MOST_PARTS = 8
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class LowRank:
    """An update with packed weights; see `packed_answer.OPS`.  update: of the part in C, which
    reads what `kept` holds."""

    update: object
    kept: tuple[object, ...]
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
            read(updates, own.inputs, own.outputs, rows),
            x.data_ptr(),
            x.stride(0),
            y.data_ptr(),
            height,
            rows,
            torch.get_num_threads(),
        )


def read(
    updates: Sequence[tuple[Any, torch.Tensor | None]], inputs: int, outputs: int, rows: int
) -> tuple[tuple[object, int, int], ...]:
    """As the part in C reads them.  UnsupportedError for what is none of a map of these sizes."""
    found = []
    for update, at in updates:
        if type(update) is not LowRank or (update.inputs, update.outputs) != (inputs, outputs):
            sizes = f"updates of this kernel with {inputs} inputs and {outputs} outputs"
            raise refuse("set of updates", sizes, update)
        where = (0, rows) if at is None else (at.data_ptr(), check_places(at))
        found.append((update.update, *where))
    return tuple(found)


def updated(call: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The same call, which says that it takes updates as its last argument; see
    docs/adapters.md."""
    named: Any = call
    named.updated = call
    return call


def blocks(up: torch.Tensor) -> list[tuple[Span, Span]]:
    """(outputs, columns) of what is not zero in `up` [out, rank], where that lies in few blocks;
    else all of it.  Maps that were fused leave zeros between their parts, which take time."""
    whole = [((0, up.shape[0]), (0, up.shape[1]))]
    found = list(_blocks(up != 0))
    held = sum((end - start) * (right - left) for (start, end), (left, right) in found)
    return found if len(found) <= MOST_PARTS and 4 * held <= 3 * up.numel() else whole


def _blocks(there: torch.Tensor) -> Iterator[tuple[Span, Span]]:
    """Of rows one after another whose columns touch, and those columns."""
    rank = there.shape[1]
    any_there = there.any(dim=1).tolist()
    first = there.int().argmax(dim=1).tolist()
    last = (rank - 1 - there.flip(1).int().argmax(dim=1)).tolist()
    row, count = 0, len(any_there)
    while row < count:
        if not any_there[row]:
            row += 1
            continue
        start, left, right = row, first[row], last[row]
        while row < count and any_there[row] and first[row] <= right and last[row] >= left:
            left, right, row = min(left, first[row]), max(right, last[row]), row + 1
        yield (start, row), (left, right + 1)
