"""Packing: in which type weights are kept, and getting them there, as a whole or by rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch  # before _native, which looks for torch's thread pool when it is imported

from framework.contracts.base import Rejection
from framework.contracts.kernel import KernelQuery
from framework.contracts.weight_rows import WeightRows
from framework_cpu_paged import _native
from framework_cpu_paged.packed_checks import check_part

Weight = torch.Tensor | WeightRows
Sources = Mapping[str, Weight]
Fits = Callable[[torch.Tensor], bool]

FLOAT32, BFLOAT16, FLOAT16, INT8, INT16 = 0, 1, 2, 3, 4
LARGEST = 65504.0
ROWS_AT_A_TIME = 1024
NUMBERS_AT_A_TIME = 2**17
"""Of what is read by rows: 512 KiB, which stay in a cache from their reading to their packing."""
GRAIN = 64
"""Every instruction set has panels of so many outputs, or of a part of it."""
MOST_INPUTS = 65536
"""Sums of products of bytes fit into 32 bits."""
MOST_UNEVEN = 22.0
"""Largest over mean size of an output's weights, see `_is_even`."""
SMALLEST = 2.0**-126


class UnfitError(Exception):
    """Weights that cannot be kept; holds the reason."""

    def __init__(self, reason: Rejection) -> None:
        super().__init__(str(reason))
        self.reason = reason


def pack(query: KernelQuery, name: str, weights: Sources, bias: str) -> object:
    """A capsule that owns packed copies of both.

    A type is tried until some rows do not fit it; most do not fit from their first ones on.
    """
    weight = weights[name]
    added = as_whole(weights[bias]) if bias in weights else None
    for kept, fits in _types(query, name, weight):
        packed = _filled(query, name, weight, added, kept, fits)
        if packed is not None:
            return packed
    raise AssertionError("the last type takes all")


def as_whole(weight: Weight) -> torch.Tensor:
    """A small one, with its numbers side by side."""
    whole: torch.Tensor = getattr(weight, "whole", lambda: weight)()
    return whole.detach().contiguous()


def _filled(
    query: KernelQuery,
    name: str,
    weight: Weight,
    bias: torch.Tensor | None,
    kept: int,
    fits: Fits,
) -> object | None:
    """None if this type does not take all rows."""
    outputs, inputs = weight.shape
    packed = None
    for first, part in _parts(name, weight):
        if not fits(part):
            return None
        if packed is None:
            start = 0 if bias is None else bias.data_ptr()
            packed = _native.pack(outputs, inputs, start, kept, query.lossless)
        _native.fill(
            packed, part.data_ptr(), part.stride(0), first, len(part), torch.get_num_threads()
        )
    return packed


def _parts(name: str, weight: Weight) -> Iterator[tuple[int, torch.Tensor]]:
    """(first row, rows) of all: at once what is there, else some at a time."""
    outputs, inputs = weight.shape
    read = getattr(weight, "rows", None)
    if read is None:
        yield 0, as_whole(weight)
        return
    step = max(1, NUMBERS_AT_A_TIME // (GRAIN * inputs)) * GRAIN
    for first in range(0, outputs, step):
        last = min(first + step, outputs)
        part = read(first, last)
        check_part(name, part, last - first, inputs)
        yield first, part.detach().contiguous()


def _types(query: KernelQuery, name: str, weight: Weight) -> Iterator[tuple[int, Fits]]:
    """Types in which it may be kept, the best one first, each with what tells whether some rows
    fit into it.  Raises UnfitError, as do these, where none will do."""
    if query.quantization is not None:
        _check_inputs(name, weight.shape)
        yield INT8, lambda part: _is_finite(name, part)
        return
    yield BFLOAT16, lambda part: _native.fits_bfloat16(part.data_ptr(), part.numel())
    if query.lossless:
        yield FLOAT16, _fits_float16
        yield FLOAT32, lambda part: True
        return
    tiles = _native.instruction_set() == "amx" and _is_even(name, weight)
    yield INT16 if tiles else FLOAT16, lambda part: _is_in_range(name, part)


def _fits_float16(part: torch.Tensor) -> bool:
    """Some at a time, as copies of all would be half as much again."""
    return all(torch.equal(some.half().float(), some) for some in part.split(ROWS_AT_A_TIME))


def _is_in_range(name: str, part: torch.Tensor) -> bool:
    low, high = (float(end) for end in part.aminmax())
    largest = max(-low, high)
    if largest <= LARGEST:  # False for NaN, too
        return True
    raise UnfitError(
        Rejection(
            code="weight_range",
            field="weight",
            found=f"{largest:g} in {name}",
            needed=f"magnitudes of at most {LARGEST:g}, the largest number of fp16",
            remedy="ask for dtype float32, or let another kernel serve it",
        )
    )


def _is_even(name: str, weight: Weight) -> bool:
    """Whether whole numbers of 16 bits lose no more than fp16 does: its rounding is off by some
    2^-12.3 of a number, that of an output's whole numbers by 2^-16.8 of the output's largest."""
    outputs, inputs = weight.shape
    if inputs > MOST_INPUTS:
        return False
    return math.fsum(_unevenness(part) for _, part in _parts(name, weight)) <= MOST_UNEVEN * outputs


def _unevenness(part: torch.Tensor) -> float:
    """The sum over its rows."""
    sizes = part.abs()
    # The mean, as a root mean square would hide that one weight is all there is of it.
    uneven = sizes.amax(dim=1) / sizes.mean(dim=1).clamp(min=SMALLEST)
    return float(uneven.sum())


def _check_inputs(name: str, shape: Sequence[int]) -> None:
    if shape[1] <= MOST_INPUTS:
        return
    raise UnfitError(
        Rejection(
            code="inputs",
            field="quantization",
            found=f"{name} with {shape[1]} inputs",
            needed=f"at most {MOST_INPUTS} inputs, so that sums fit into 32 bits",
            remedy="leave out quantization",
        )
    )


def _is_finite(name: str, part: torch.Tensor) -> bool:
    """A number that is none would spoil the scale of its output."""
    # Of a tensor with a number that is none both are none.  `isfinite` would take twice the memory.
    if all(math.isfinite(end) for end in part.aminmax()):
        return True
    raise UnfitError(
        Rejection(
            code="weight_range",
            field="quantization",
            found=f"a weight of {name} that is not finite",
            needed="finite weights",
            remedy="leave out quantization, or mend the weights",
        )
    )
