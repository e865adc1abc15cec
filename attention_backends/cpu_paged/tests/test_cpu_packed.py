"""Packed kernels: every instruction set, and what the kit does not try."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from attention_backends.cpu_paged.tests.uses import prepared, query
from framework.contracts.base import Rejected
from framework_cpu_paged import _native
from framework_cpu_paged.answer import INSTRUCTIONS
from framework_cpu_paged.packed_answer import answer
from framework_cpu_paged.packed_kernel import CpuPackedKernel

# Kept as: what the platform chooses, bfloat16 with fewer and with all digits of the activations,
# fp16, float32, and eight bits.
FORMS = (
    (torch.float32, {}),
    (torch.bfloat16, {}),
    (torch.bfloat16, {"lossless": True}),
    (torch.float16, {"lossless": True}),
    (torch.float32, {"lossless": True}),
    (torch.float32, {"quantization": "int8"}),
)


@pytest.mark.parametrize("name", ["avx2", pytest.param("plain", marks=pytest.mark.long)])
@pytest.mark.parametrize("plugin", ["kernel:cpu_packed", "attention_backend:cpu_paged"])
def test_lesser_instruction_sets_conform(name, plugin):
    """FRAMEWORK_CPU_INSTRUCTIONS forbids better ones; this machine's own is tried by the kit."""
    program = f"""
from framework.testing.conformance import Suite, check
Suite.slowness = 20.0
import torch
from framework_cpu_paged import _native
report = check({plugin!r})
print(_native.instruction_set())
print(report.text())
raise SystemExit(bool(report.failures))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "FRAMEWORK_CPU_INSTRUCTIONS": name},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split()[0] in INSTRUCTIONS[INSTRUCTIONS.index(name) :]


@pytest.fixture(params=INSTRUCTIONS)
def each_set(request):
    """All that this machine has, one after the other."""
    if _native.choose_instructions(request.param) != request.param:
        _native.choose_instructions(None)
        pytest.skip(f"no {request.param} here")
    yield request.param
    _native.choose_instructions(None)


@pytest.mark.parametrize("shape", [(400, 576), (70, 1601), (33, 385), (1, 1)])
def test_no_row_depends_on_the_number_of_rows_or_of_threads(shape, each_set):
    """Each number of rows is cut into blocks in its own way."""
    torch.manual_seed(0)
    weight, x = torch.randn(*shape), torch.randn(230, shape[1])
    threads = torch.get_num_threads()
    for kept, wish in FORMS:
        call = prepared(weight.to(kept).float(), **wish).call
        whole = call(x)
        for rows in (*range(1, 35), 48, 95, 96, 97, 193):
            assert torch.equal(call(x[:rows]), whole[:rows]), rows
            assert torch.equal(call(x[7 : 7 + rows]), whole[7 : 7 + rows]), rows
        try:
            for count in (1, 2, 3):
                torch.set_num_threads(count)
                assert torch.equal(call(x), whole), count
        finally:
            torch.set_num_threads(threads)


@pytest.mark.parametrize("shape", [(960, 576), (70, 37), (33, 385), (1, 1), (16, 4)])
def test_products_are_as_exact_as_is_said(shape, each_set):
    torch.manual_seed(0)
    weight, bias, x = torch.randn(*shape), torch.randn(shape[0]), torch.randn(40, shape[1])
    x[3, 0] *= 1000  # rows have outliers, and a few are nothing but that
    x[5] = 0
    for kept, wish in FORMS:
        exact = weight.to(kept).float()
        asked = query(*shape, traits=frozenset(("bias",)), **wish)
        found = CpuPackedKernel().prepare(asked, {"weight": exact, "bias": bias}, {})
        rows, told = found.rows(torch.arange(shape[0])), answer(asked)
        off = (found.call(x).double() - (x.double() @ rows.double().T + bias)).abs()
        terms = x.abs().double() @ rows.abs().double().T + bias.abs()
        if "quantization" not in wish:
            # The sums themselves: as exact as those of float32 with some more for activations.
            assert (off <= 2.0**-15 * terms).all()
            assert (rows - exact).abs().max() <= told.error * exact.abs().max()
        if wish.get("lossless"):
            assert torch.equal(rows, exact)
            assert (off <= 2.0**-19 * terms).all()


def test_rows_that_are_not_finite_spoil_no_others(each_set):
    torch.manual_seed(0)
    weight, x = torch.randn(70, 100), torch.randn(40, 100)
    for kept, wish in FORMS:
        call = prepared(weight.to(kept).float(), **wish).call
        whole = call(x)
        bad = x.clone()
        bad[3, 5], bad[17, 99], bad[20, 0] = float("nan"), float("inf"), float("-inf")
        found = call(bad)
        odd = [3, 17, 20]
        assert not found[odd].isfinite().any()
        rest = [row for row in range(40) if row not in odd]
        assert torch.equal(found[rest], whole[rest])


@pytest.mark.parametrize("top", [3.4e38, 1.5 * 2.0**126, 2.0**120, 1.0, 2.0**-100])
def test_activations_at_the_ends_of_float32_count(top, each_set):
    """Nothing that is finite in between may turn infinite, lose its digits or its sign."""
    torch.manual_seed(0)
    weight = torch.randn(70, 100) / 1024  # so that no sum is infinite
    x = torch.randn(40, 100).clamp(-1, 1) * torch.linspace(0.6, 1, 40)[:, None]
    x = (x.double() * top).float()
    for kept, wish in FORMS:
        exact = weight.to(kept).float()
        found = prepared(exact, **wish)
        off = (found.call(x).double() - x.double() @ exact.double().T).abs()
        terms = x.abs().double() @ exact.abs().double().T
        assert (off <= (0.03 if "quantization" in wish else 2.0**-10) * terms).all(), (kept, wish)
        assert (prepared(exact * 0, **wish).call(x) == 0).all()


@pytest.mark.parametrize("inputs", [65536, 65537])
def test_the_largest_sums_of_bytes_are_exact_or_refused(inputs, each_set):
    """All of one sign and size, which no sum can be larger than."""
    weight = torch.ones(3, inputs)
    found = prepared(weight, quantization="int8")
    if inputs > 65536:
        assert isinstance(found, Rejected)
        assert "65536" in str(found.reasons[0])
    else:
        off = found.call(torch.full((2, inputs), -2.0)) + 2 * inputs
        assert off.abs().max() <= 2 * inputs * 2.0**-20
    # Not held by bfloat16: whole numbers of 16 bits, if there are tiles.
    found = prepared(weight * (1 + 2.0**-9))
    exact = -2.0 * inputs * (1 + 2.0**-9)
    assert ((found.call(torch.full((2, inputs), -2.0)) / exact - 1).abs() <= 2.0**-7).all()


def test_outputs_with_outliers_are_no_whole_numbers():
    """One large weight would leave few digits to the others of its output."""
    torch.manual_seed(0)
    weight = torch.randn(64, 64) * 0.01
    weight[:, 3] = 100
    found = prepared(weight)
    rows = found.rows(torch.arange(64))
    assert ((rows - weight).abs() <= 2.0**-11 * weight.abs() + 2.0**-25).all()


def test_rows_of_a_larger_tensor_are_read_in_place():
    call = prepared(torch.randn(40, 24)).call
    wide = torch.randn(5, 60)
    assert torch.equal(call(wide[:, 10:34]), call(wide[:, 10:34].contiguous()))
    assert torch.equal(call(wide.t()[:24].t()), call(wide[:, :24].contiguous()))
    assert torch.equal(
        call(wide.repeat(1, 2)[:, ::5]), call(wide.repeat(1, 2)[:, ::5].contiguous())
    )


def test_weights_are_kept_in_the_narrowest_type_that_may_hold_them():
    torch.manual_seed(0)
    weight = torch.randn(64, 64)
    halves, brain = weight.half().float(), weight.bfloat16().float()
    x = torch.eye(64)
    for kept, lossless, exact, size in (
        (brain, False, True, 2),
        (brain * 2.0**30, False, True, 2),  # too large for fp16
        (halves, True, True, 2),
        (weight, False, False, 2),
        (weight, True, True, 4),
    ):
        found = prepared(kept, lossless=lossless)
        assert found.num_bytes == 64 * 64 * size
        assert torch.equal(found.call(x).t(), kept) is exact


@pytest.mark.parametrize("bad", [1e6, float("inf"), float("nan")])
def test_what_fp16_cannot_hold_is_rejected_with_its_place_or_kept_whole(bad):
    weight = torch.full((4, 4), 0.1)
    weight[2, 1] = bad
    found = prepared(weight)
    assert isinstance(found, Rejected)
    assert "fp16" in str(found.reasons[0])
    kept = prepared(weight, lossless=True).call(torch.eye(4)).t()
    assert torch.equal(kept[:2], weight[:2])


@pytest.mark.skipif(shutil.which("cc") is None, reason="asks a C compiler")
@pytest.mark.parametrize("flag", ["-ffast-math", "-ffinite-math-only", "-Ofast"])
def test_flags_of_the_environment_do_not_change_what_numbers_mean(flag, monkeypatch):
    """As CFLAGS, which stand before the part's own.  Masks are made of infinities."""
    found = []
    monkeypatch.setattr("setuptools.setup", lambda **given: found.extend(given["ext_modules"]))
    runpy.run_path(str(Path(__file__).parents[1] / "setup.py"))
    (part,) = found
    done = subprocess.run(
        ["cc", flag, *part.extra_compile_args, "-E", "-dM", "-x", "c", os.devnull],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "#define __FINITE_MATH_ONLY__ 0" in done.stdout
    assert "__FAST_MATH__" not in done.stdout
    assert set(part.extra_link_args) <= set(part.extra_compile_args)


def test_a_layer_reads_its_arguments_in_whatever_order_they_lie():
    torch.manual_seed(0)
    sizes = {"in_features": 8, "features": 6, "both": 20, "intermediate": 10}
    weights = {
        "output": torch.randn(6, 8),
        "norm": torch.randn(6),
        "gate_up": torch.randn(20, 6),
        "down": torch.randn(6, 10),
    }
    asked = query(1, 1, op="layer_output", sizes=sizes)
    call = CpuPackedKernel().prepare(asked, weights, {"eps": 1e-5}).call
    attended, x = torch.randn(8, 5).t(), torch.randn(6, 5).t()
    assert torch.equal(call(attended, x), call(attended.contiguous(), x.contiguous()))


def int8(weight: torch.Tensor, bias: torch.Tensor | None = None):
    weights = {"weight": weight} if bias is None else {"weight": weight, "bias": bias}
    asked = query(
        *weight.shape,
        quantization="int8",
        traits=frozenset() if bias is None else frozenset(("bias",)),
    )
    return CpuPackedKernel().prepare(asked, weights, {})


@pytest.mark.parametrize("shape", [(960, 576), (70, 37), (33, 385), (1, 1), (16, 4)])
def test_int8_is_the_product_with_whole_numbers(shape, each_set):
    torch.manual_seed(0)
    weight, bias, x = torch.randn(*shape), torch.randn(shape[0]), torch.randn(30, shape[1])
    weight[0] = 0
    x[4, 0] = 300  # activations have outliers; what is beside them must not be lost
    found = int8(weight, bias)
    assert found.num_bytes < weight.numel() * 1.2 + 64 * (shape[0] + shape[1] + 64)
    rows = found.rows(torch.arange(shape[0]))
    step = weight.abs().amax(dim=1, keepdim=True) / 127
    assert ((rows - weight).abs() <= 0.501 * step).all()
    right = x.double() @ rows.double().T + bias
    terms = x.abs().double() @ rows.abs().double().T + x.abs().amax(dim=1, keepdim=True)
    allowed = 2.0**-14 * (terms + bias.abs())
    if each_set == "avx2":  # rows in whole numbers of sixteen bits, for each group of 64 inputs
        groups = torch.nn.functional.pad(x.abs(), (0, -shape[1] % 64)).unflatten(1, (-1, 64))
        steps = groups.amax(dim=2).repeat_interleave(64, dim=1)[:, : shape[1]].double() / 32767
        allowed = 0.501 * steps @ rows.abs().double().T + 2.0**-20 * (terms + bias.abs())
    assert ((found.call(x) - right).abs() <= allowed).all()


def test_weights_that_are_not_finite_are_not_quantized():
    found = int8(torch.tensor([[1.0, float("nan")]]))
    assert isinstance(found, Rejected)
    assert "finite" in str(found.reasons[0])
