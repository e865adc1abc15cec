"""What each kernel computes, against float64 on the host, and what it rejects."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from framework.contracts.base import Rejected
from framework.contracts.kernel import KernelQuery, KernelSupported
from framework_torch.kernels.fp16_packed import INSTRUCTIONS, Fp16PackedKernel
from framework_torch.kernels.fused_norm import FusedNormKernel
from framework_torch.kernels.plain import PlainKernel

LINEAR = KernelQuery(
    op="linear",
    platform="cpu",
    device="cpu",
    features=INSTRUCTIONS,
    dtype="float32",
    weight_dtype="float32",
    sizes={"in_features": 576, "out_features": 40},
)
NORM = replace(LINEAR, op="rms_norm", sizes={"features": 576})


def wide(tensor: torch.Tensor) -> np.ndarray:
    return tensor.double().numpy()


def supported(kernel, query) -> KernelSupported:
    answer = kernel.answer(query)
    assert isinstance(answer, KernelSupported)
    return answer


def codes(answer) -> set[str]:
    assert isinstance(answer, Rejected)
    return {reason.code for reason in answer.reasons}


@pytest.mark.parametrize("op", ["linear", "logits"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("inputs", [1, 7, 576, 1100])
@pytest.mark.parametrize(
    ("kernel", "dtype"),
    [(PlainKernel(), "float32"), (PlainKernel(), "bfloat16"), (Fp16PackedKernel(), "float32")],
)
def test_linear_is_as_near_to_the_truth_as_its_kernel_says(kernel, dtype, inputs, bias, op):
    generator = torch.Generator().manual_seed(inputs)
    # Over many orders of magnitude, down to where fp16 has few digits left and none.
    scale = torch.exp(torch.empty(40, inputs).uniform_(-20, 4, generator=generator))
    kind = getattr(torch, dtype)
    weights = {"weight": (torch.randn(40, inputs, generator=generator) * scale).to(kind)}
    if bias:
        weights["bias"] = torch.randn(40, generator=generator).to(kind)
    query = replace(
        LINEAR,
        op=op,
        dtype=dtype,
        weight_dtype=dtype,
        sizes={"in_features": inputs, "out_features": 40},
        traits=frozenset(("bias",) if bias else ()),
    )
    answer = supported(kernel, query)
    call = kernel.prepare(query, weights, {}).call
    for rows in (0, 1, 2, 3, 7, 33):
        x = torch.randn(rows, inputs, generator=generator).to(kind)
        true = wide(x) @ wide(weights["weight"]).T
        floored = np.maximum(np.abs(wide(weights["weight"])), answer.smallest)
        terms = np.abs(wide(x)) @ floored.T
        if bias:
            true, terms = true + wide(weights["bias"]), terms + np.abs(wide(weights["bias"]))
        result = call(x)
        assert (result.dtype, tuple(result.shape)) == (kind, (rows, 40))
        assert np.all(np.abs(wide(result) - true) <= answer.error * terms)


@pytest.mark.parametrize("offset", [False, True])
@pytest.mark.parametrize("size", [1, 24, 576])
@pytest.mark.parametrize(
    ("kernel", "dtype"),
    [(PlainKernel(), "float32"), (PlainKernel(), "bfloat16"), (FusedNormKernel(), "float32")],
)
def test_rms_norm_is_as_near_to_the_truth_as_its_kernel_says(kernel, dtype, size, offset):
    generator, kind = torch.Generator().manual_seed(size), getattr(torch, dtype)
    weight = torch.randn(size, generator=generator).to(kind)
    query = replace(
        NORM,
        dtype=dtype,
        weight_dtype=dtype,
        sizes={"features": size},
        traits=frozenset(("offset",) if offset else ()),
    )
    answer = supported(kernel, query)
    call = kernel.prepare(query, {"weight": weight}, {"eps": 1e-5}).call
    factor = wide(weight) + 1.0 if offset else wide(weight)
    for shape in ((0, size), (1, size), (5, 3, size)):
        x = (torch.randn(shape, generator=generator) * 30).to(kind)
        true = wide(x) / np.sqrt((wide(x) ** 2).mean(-1, keepdims=True) + 1e-5) * factor
        result = call(x)
        assert (result.dtype, tuple(result.shape)) == (kind, shape)
        assert np.all(np.abs(wide(result) - true) <= answer.error * np.abs(true))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"op": "mine.mlp"}, "op"),
        ({"dtype": "float64", "weight_dtype": "float64"}, "dtype"),
        ({"weight_dtype": "float16"}, "weight_dtype"),
        ({"quantization": "q4_0"}, "quantization"),
        ({"traits": frozenset(("silu",))}, "traits"),
        ({"tensor_api": "jax"}, "tensor_api"),
    ],
)
@pytest.mark.parametrize(
    ("kernel", "query"),
    [(PlainKernel(), LINEAR), (Fp16PackedKernel(), LINEAR), (FusedNormKernel(), NORM)],
)
def test_what_a_kernel_does_not_know_it_rejects(kernel, query, change, code):
    supported(kernel, query)
    assert code in codes(kernel.answer(replace(query, **change)))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"op": "rms_norm"}, "op"),
        ({"device": "cuda"}, "device"),
        ({"dtype": "bfloat16", "weight_dtype": "bfloat16"}, "dtype"),
        ({"features": frozenset(("avx2", "fma"))}, "features"),
        ({"keep_once": True}, "keep_once"),
        ({"graph_mode": "full"}, "graph_mode"),
    ],
)
def test_fp16_packing_rejects_what_fbgemm_cannot_do(change, code):
    assert codes(Fp16PackedKernel().answer(replace(LINEAR, **change))) == {code}


@pytest.mark.parametrize("value", [65520.0, -1e6, float("inf"), float("nan")])
def test_weights_that_fp16_cannot_hold_are_rejected_not_clipped(value):
    weight = torch.zeros(3, 5)
    weight[1, 2] = 65504.0
    call = Fp16PackedKernel().prepare(LINEAR, {"weight": weight}, {}).call
    assert call(torch.eye(5))[2, 1] == 65504.0
    weight[2, 4] = value
    answer = Fp16PackedKernel().prepare(LINEAR, {"weight": weight}, {})
    assert codes(answer) == {"weight_range"}
    assert "65504" in str(answer.reasons[0])


def test_fp16_packing_needs_torchs_engine():
    quantized = torch.backends.quantized
    before = quantized.engine
    try:
        quantized.engine = "qnnpack"
        answer = Fp16PackedKernel().prepare(LINEAR, {"weight": torch.zeros(3, 5)}, {})
    finally:
        quantized.engine = before
    assert codes(answer) == {"engine"}


ROWS = """
import torch
from dataclasses import replace
from framework_torch.kernels.fp16_packed import Fp16PackedKernel
def differing(query):
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(40, 576, generator=generator)
    x = torch.randn(64, 576, generator=generator)
    call = Fp16PackedKernel().prepare(query, {"weight": weight}, {}).call
    whole = call(x)
    return [n for n in range(1, 64) if not torch.equal(call(x[:n].contiguous()), whole[:n])]
"""


def test_a_row_depends_on_no_other_where_that_was_asked_for():
    query = replace(LINEAR, row_independent=True)
    assert supported(Fp16PackedKernel(), query).row_independent
    assert not supported(Fp16PackedKernel(), LINEAR).row_independent
    space: dict = {}
    exec(ROWS, space)
    assert space["differing"](query) == []
    assert codes(PlainKernel().answer(query)) == {"row_independent"}


@pytest.mark.long
def test_a_row_depends_on_no_other_without_avx512_either():
    """FBGEMM reads the variable when it is loaded, hence the process."""
    code = f"""{ROWS}
from framework.contracts.kernel import KernelQuery
query = KernelQuery(op="linear", platform="cpu", device="cpu", dtype="float32",
                    weight_dtype="float32", sizes={{"in_features": 576, "out_features": 40}})
print(differing(query) != [], differing(replace(query, row_independent=True)))
"""
    environment = {"FBGEMM_ENABLE_INSTRUCTIONS": "AVX2", "OMP_NUM_THREADS": "1"}
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert out.stdout.split(maxsplit=1) == ["True", "[]\n"]


def test_packing_computes_no_block_of_one_or_two_rows():
    """Such a block is computed by other code, on processors without AVX-512."""
    from framework_torch.kernels.fp16_packed import _padded

    seen = []

    def call(x: torch.Tensor) -> torch.Tensor:
        seen.append(len(x))
        return x * 2

    padded = _padded(call)
    for rows in range(20):
        x = torch.ones(rows, 3)
        assert torch.equal(padded(x), x * 2)
    assert [n for n in seen if n % 6 in (1, 2)] == []
    assert max(n - rows for rows, n in enumerate(seen)) == 2
