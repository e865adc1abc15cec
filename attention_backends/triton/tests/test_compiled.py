"""The kernels are compiled for GPUs that need not be there; nothing runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from framework_triton.answer import triton_is_installed

pytestmark = pytest.mark.skipif(not triton_is_installed(), reason="triton is for Linux only")

AMPERE, HOPPER, MI300 = ("cuda", 80, 32), ("cuda", 90, 32), ("hip", "gfx942", 64)
SHARED = {AMPERE: 99 << 10, HOPPER: 227 << 10, MI300: 64 << 10}
"""Bytes of shared memory that a program may have; of 8.x the least."""
BINARY = {"cuda": "cubin", "hip": "hsaco"}
POINTERS = {"table", "starts", "lengths", "work"}
FLOATS = {"sinks", "slopes", "best_out", "sum_out", "pieces", "best_in", "sum_in"}
SHAPE = {"KV_HEADS": 8, "GROUP": 3, "GROUP_WIDE": 4}


@pytest.fixture(autouse=True)
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Anew each time, and not the interpreter, which kernels would be made for."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def compiled(kernel, target, dtype: str, constants, *, out: str = "", **options):
    """The kernel for a target; its code is there and it needs no more shared memory than it may."""
    import triton
    from triton.backends.compiler import GPUTarget

    def kind(name: str) -> str:
        if name in constants:
            return "constexpr"
        if name in POINTERS:
            return "*i32"
        if name in FLOATS:
            return "*fp32"
        if name in ("scale", "softcap"):
            return "fp32"
        if name == "slots":
            return "*i64"
        if name == "out":
            return f"*{out or dtype}"
        return f"*{dtype}" if name in ("q", "k", "v", "cache") else "i32"

    source = triton.compiler.ASTSource(
        kernel, {name: kind(name) for name in kernel.arg_names}, constexprs=constants
    )
    made = triton.compile(source, target=GPUTarget(*target), options=options)
    assert made.asm[BINARY[target[0]]]
    assert made.metadata.shared <= SHARED[target]
    return made


def attends(target, dtype: str, size: int, *, piece: bool, everything: bool) -> None:
    """attend as `framework_triton.step` launches it, with all that a layer may ask, or nothing."""
    import triton.language as tl

    from framework_triton.kernels import attend
    from framework_triton.step import key_blocks
    from framework_triton.work import LARGE, SMALL, SPLIT

    compute = {"bf16": tl.bfloat16, "fp16": tl.float16, "fp32": tl.float32}[dtype]
    blocks = key_blocks(size, dtype == "fp32")
    names = ("SOFTCAP", "WINDOW", "CHUNK", "SINKS", "SLOPES")
    constants = {
        **SHAPE,
        **{f"HAS_{name}": everything for name in names},
        "SIZE": size,
        "SIZE_V": size,
        "WIDE": size,
        "WIDE_V": size,
        "PAGE": 16,
        "TILE": SMALL if piece else LARGE,
        "BLOCK": blocks["BLOCK"],
        "SPLIT": SPLIT,
        "CAUSAL": True,
        "PIECE": piece,
        "COMPUTE": compute,
    }
    out = "fp32" if piece else dtype
    stages = blocks["num_stages"]
    compiled(attend, target, dtype, constants, out=out, num_stages=stages)


@pytest.mark.parametrize("target", [HOPPER, MI300], ids=lambda t: str(t[1]))
@pytest.mark.parametrize("piece", [False, True])
def test_attention_compiles(target, piece) -> None:
    attends(target, "bf16", 128, piece=piece, everything=True)


@pytest.mark.long
@pytest.mark.parametrize("target", [AMPERE, HOPPER, MI300], ids=lambda t: str(t[1]))
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("size", [16, 64, 128, 256])
@pytest.mark.parametrize("piece", [False, True])
def test_attention_compiles_for_all_types_and_sizes(target, dtype, size, piece) -> None:
    attends(target, dtype, size, piece=piece, everything=False)


@pytest.mark.parametrize("target", [AMPERE, MI300], ids=lambda t: str(t[1]))
def test_writing_and_merging_compile(target) -> None:
    from framework_triton.kernels import merge, write

    sizes = {"SIZE": 96, "SIZE_V": 80, "WIDE": 128, "WIDE_V": 128}
    compiled(write, target, "bf16", {**sizes, "HEADS": 8, "PAGE": 16, "BLOCK": 32})
    constants = {**SHAPE, "SIZE_V": 80, "WIDE_V": 128, "TILE": 16, "HAS_SINKS": True}
    compiled(merge, target, "bf16", constants)
