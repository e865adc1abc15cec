"""What the part in C takes on trust of tensors that are addresses to it: types, shapes, places."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from framework.contracts.kernel import KernelQuery
from framework.contracts.weight_rows import WeightRows
from framework.errors import UnsupportedError
from framework_cpu_paged.packed_answer import OPS


def refuse(what: str, expected: object, found: object) -> UnsupportedError:
    """The error for tensors that are not as the operator says."""
    return UnsupportedError(
        f"the kernel cpu_packed does not serve this {what}",
        expected=expected,
        found=found,
        mend="pass tensors as framework.contracts.kernel.OPERATORS and the query describe them",
    )


def described(values: torch.Tensor | WeightRows) -> str:
    return f"{values.dtype} {[*values.shape]} on {getattr(values, 'device', 'cpu')}"


def check_part(name: str, part: torch.Tensor, count: int, width: int) -> None:
    """UnsupportedError unless these are `count` rows of a weight, float32 on the CPU."""
    if part.dtype is not torch.float32 or not part.is_cpu or part.shape != (count, width):
        expected = f"{torch.float32} [{count}, {width}] on cpu"
        raise refuse(f"part of the weight {name}", expected, described(part))


def check_weights(query: KernelQuery, weights: Mapping[str, torch.Tensor | WeightRows]) -> None:
    """UnsupportedError for weights that lack, or are not as operator and query describe them; where
    rows that are still to be read lie is seen then."""
    for key, text in OPS[query.op].weights.items():
        name = key.strip("[]")
        if name not in weights:
            if name == key or name in query.traits:
                raise refuse(f"use of {query.op}", f"{name} {text}", sorted(weights))
            continue
        shape = tuple(query.sizes[size] for size in text.strip("[]").split(", "))
        found = weights[name]
        here = getattr(found, "is_cpu", True)
        if found.dtype is not torch.float32 or not here or found.shape != shape:
            expected = f"{torch.float32} {[*shape]} on cpu"
            raise refuse(f"weight {name} of {query.op}", expected, described(found))


def check_rows(what: str, x: torch.Tensor, width: int, rows: int | None = None) -> int:
    """The number of rows of float32 [rows, width] on the CPU; it costs some 0.3 us.
    UnsupportedError for anything else, and for another number than `rows`."""
    shape = x.shape
    fits = x.dtype is torch.float32 and x.is_cpu and len(shape) == 2 and shape[1] == width
    if not fits or rows not in (None, shape[0]):
        expected = f"{torch.float32} [{'T' if rows is None else rows}, {width}] on cpu"
        raise refuse(what, expected, described(x))
    return shape[0]


def check_ids(ids: torch.Tensor) -> int:
    """How many there are.  UnsupportedError unless they are int64 [N] on the CPU."""
    if ids.dtype is not torch.int64 or not ids.is_cpu or ids.dim() != 1:
        raise refuse("list of rows", f"{torch.int64} [N] on cpu", described(ids))
    return ids.shape[0]


def check_places(at: torch.Tensor) -> int:
    """As `check_ids`, of ids that lie one after the other; the part in C looks at their values."""
    if not at.is_contiguous():
        raise refuse("list of rows", "one number after the other", f"stride {at.stride(0)}")
    return check_ids(at)
