"""Packing, and calls of the part in C, with tensors as addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch  # before _native, which looks for torch's thread pool when it is imported

from framework.contracts.base import Rejected
from framework.contracts.kernel import KernelQuery, Prepared
from framework_cpu_paged import _native
from framework_cpu_paged.low_rank import NO_UPDATES, LowRank, Updates, blocks, read, updated
from framework_cpu_paged.packed_answer import LOW_RANK, answer
from framework_cpu_paged.packed_checks import check_ids, check_rows, check_weights
from framework_cpu_paged.packed_weights import Sources, UnfitError, as_whole, pack

Norm = tuple[int, float, float]
"""Address of the weights, what is added to them, eps; as the part in C reads it."""

NO_NORM: Norm = (0, 0.0, 0.0)
ACTIVATIONS: Mapping[str, int] = {"gelu_tanh": 1, "gelu": 2, "relu": 3}
SILU = 0


def prepare(
    query: KernelQuery, weights: Sources, constants: Mapping[str, float]
) -> Prepared | Rejected:
    """As `Kernel.prepare_rows`.  UnsupportedError for weights that are not as the query says."""
    said = answer(query)
    if isinstance(said, Rejected):
        return said
    check_weights(query, weights)
    make = _MAKERS.get(query.op, _linear)
    try:
        return make(query, weights, constants)
    except UnfitError as unfit:
        return Rejected((unfit.reason,))


def _whole_rows(x: torch.Tensor) -> torch.Tensor:
    """With the numbers of a row side by side, as the part in C reads them."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _result(rows: int, width: int) -> torch.Tensor:
    """In the type that the part in C writes, whatever the default of the process is."""
    return torch.empty((rows, width), dtype=torch.float32, device="cpu")


def _linear(query: KernelQuery, weights: Sources, constants: Mapping[str, float]) -> Prepared:
    packed = pack(query, "weight", weights, "bias")
    outputs, inputs = query.sizes["out_features"], query.sizes["in_features"]
    threads, multiply = torch.get_num_threads, _native.multiply

    def call(x: torch.Tensor) -> torch.Tensor:
        count = check_rows("x", x, inputs)
        x, out = _whole_rows(x), _result(count, outputs)
        multiply(packed, x.data_ptr(), x.stride(0), count, out.data_ptr(), threads())
        return out

    def rows(ids: torch.Tensor) -> torch.Tensor:
        count = check_ids(ids)
        ids, out = ids.contiguous(), _result(count, inputs)
        _native.unpack(packed, ids.data_ptr(), count, out.data_ptr())
        return out

    return Prepared(
        call=call, keeps_weights=False, num_bytes=_native.packed_bytes(packed), rows=rows
    )


def _norms(query: KernelQuery, constants: Mapping[str, float]) -> Callable[..., Norm]:
    offset, eps = float("offset" in query.traits), constants["eps"]

    def norm(weight: torch.Tensor | None) -> Norm:
        return NO_NORM if weight is None else (weight.data_ptr(), offset, eps)

    return norm


def _own(weights: Sources, *names: str) -> dict[str, torch.Tensor]:
    """Copies of small weights, which the part in C reads in place."""
    return {name: as_whole(weights[name]).clone() for name in names if name in weights}


def _layer_input(query: KernelQuery, weights: Sources, constants: Mapping[str, float]) -> Prepared:
    sizes, norm = query.sizes, _norms(query, constants)
    linear = pack(query, "weight", weights, "bias")
    own = _own(weights, "norm", "q_norm", "k_norm")
    entry = _native.entry(
        linear,
        norm(own["norm"]),
        norm(own.get("q_norm")),
        norm(own.get("k_norm")),
        sizes["heads"],
        sizes["kv_heads"],
        sizes["head_size"],
    )
    features, outputs, half = sizes["features"], sizes["out_features"], sizes["half_head"]
    threads, run = torch.get_num_threads, _native.run_entry

    def call(
        x: torch.Tensor,
        cosines: torch.Tensor,
        sines: torch.Tensor,
        updates: Updates = NO_UPDATES,
        kept: object = (linear, own),
    ) -> torch.Tensor:
        rows = check_rows("x", x, features)
        check_rows("cosines", cosines, half, rows)
        check_rows("sines", sines, half, rows)
        x, cosines, sines = _whole_rows(x), cosines.contiguous(), sines.contiguous()
        out = _result(rows, outputs)
        run(
            entry,
            x.data_ptr(),
            x.stride(0),
            cosines.data_ptr(),
            sines.data_ptr(),
            out.data_ptr(),
            rows,
            threads(),
            *([read(updates.get("weight", ()), features, outputs, rows)] if updates else ()),
        )
        return out

    return Prepared(call=updated(call), keeps_weights=False, num_bytes=_bytes((linear,), own))


def _layer_output(query: KernelQuery, weights: Sources, constants: Mapping[str, float]) -> Prepared:
    sizes, norm = query.sizes, _norms(query, constants)
    packed = tuple(
        pack(query, name, weights, f"{name}_bias") for name in ("output", "gate_up", "down")
    )
    own = _own(weights, "attention_end_norm", "norm", "mlp_end_norm")
    activation = next((ACTIVATIONS[name] for name in query.traits & ACTIVATIONS.keys()), SILU)
    leave = _native.leave(
        *packed,
        norm(own.get("attention_end_norm")),
        norm(own["norm"]),
        norm(own.get("mlp_end_norm")),
        activation,
    )
    inputs, outputs = sizes["in_features"], sizes["features"]
    threads, run = torch.get_num_threads, _native.run_leave
    maps = (
        ("output", inputs, outputs),
        ("gate_up", outputs, sizes["both"]),
        ("down", sizes["intermediate"], outputs),
    )

    def call(
        attended: torch.Tensor,
        x: torch.Tensor,
        updates: Updates = NO_UPDATES,
        kept: object = (packed, own),
    ) -> torch.Tensor:
        rows = check_rows("x", x, outputs)
        check_rows("attended", attended, inputs, rows)
        attended, x = _whole_rows(attended), _whole_rows(x)
        out = _result(rows, outputs)
        run(
            leave,
            attended.data_ptr(),
            attended.stride(0),
            x.data_ptr(),
            x.stride(0),
            out.data_ptr(),
            rows,
            threads(),
            *([read(updates.get(name, ()), *own, rows) for name, *own in maps] if updates else ()),
        )
        return out

    return Prepared(call=updated(call), keeps_weights=False, num_bytes=_bytes(packed, own))


def _low_rank(query: KernelQuery, weights: Sources, constants: Mapping[str, float]) -> Prepared:
    down, up = pack(query, "down", weights, ""), as_whole(weights["up"])
    parts = tuple(
        (pack(query, "up", {"up": up[start:end, left:right]}, ""), left, start)
        for (start, end), (left, right) in blocks(up)
    )
    inputs, outputs = query.sizes["in_features"], query.sizes["out_features"]
    update = LowRank(_native.low_rank(down, outputs, parts), (down, parts), inputs, outputs)
    packed = (down, *(part for part, _, _ in parts))
    return Prepared(call=update, keeps_weights=False, num_bytes=_bytes(packed, {}))


def _bytes(packed: Iterable[object], own: Mapping[str, torch.Tensor]) -> int:
    return sum(map(_native.packed_bytes, packed)) + sum(each.nbytes for each in own.values())


_MAKERS = {"layer_input": _layer_input, "layer_output": _layer_output, LOW_RANK: _low_rank}
