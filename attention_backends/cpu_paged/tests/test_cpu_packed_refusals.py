"""What packed kernels refuse: what the part in C, which has addresses alone, would misread."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from attention_backends.cpu_paged.tests.uses import prepared, query
from framework.contracts.attention_backend import AttentionQuery
from framework.contracts.base import Rejected, Supported
from framework.contracts.kernel import KernelQuery
from framework.errors import UnsupportedError
from framework_cpu_paged.answer import answer as attention_answer
from framework_cpu_paged.packed_answer import answer
from framework_cpu_paged.packed_kernel import CpuPackedKernel


def test_ids_outside_of_the_weight_are_refused():
    rows = prepared(torch.randn(10, 4)).rows
    for bad in (-1, 10):
        with pytest.raises(IndexError, match=f"row {bad} of 10"):
            rows(torch.tensor([0, bad]))
    assert rows(torch.empty(0, dtype=torch.int64)).shape == (0, 4)


def test_without_the_part_in_c_it_says_so():
    found = answer(query(4, 4), built=lambda: False)
    assert isinstance(found, Rejected)
    assert [reason.code for reason in found.reasons] == ["not_built"]
    assert isinstance(answer(query(4, 4)), Supported)


@pytest.mark.parametrize("name", ["AVX2", "sse4", "avx2 "])
def test_an_unknown_instruction_set_is_an_error_and_no_slow_one_instead(name, monkeypatch):
    heads = {"head_size": 64, "head_size_v": 64, "num_heads": 9, "num_kv_heads": 3}
    attention = AttentionQuery(platform="cpu", dtype="float32", cache_dtype="float32", **heads)
    asked = ((answer, query(4, 4)), (attention_answer, attention))
    monkeypatch.setenv("FRAMEWORK_CPU_INSTRUCTIONS", name)
    for ask, what in asked:
        found = ask(what)
        assert isinstance(found, Rejected)
        assert found.final
        assert repr(name) in str(found.reasons[0])
    monkeypatch.setenv("FRAMEWORK_CPU_INSTRUCTIONS", "")
    assert all(isinstance(ask(what), Supported) for ask, what in asked)


@pytest.mark.parametrize("traits", [{"relu", "gelu"}, {"unheard-of"}])
def test_traits_that_do_not_go_together_are_rejected(traits):
    asked = query(4, 4, op="layer_output", traits=frozenset(traits))
    assert isinstance(answer(asked), Rejected)


INPUT_SIZES = {
    "features": 6,
    "out_features": 16,
    "heads": 2,
    "kv_heads": 1,
    "head_size": 4,
    "half_head": 2,
}
OUTPUT_SIZES = {"in_features": 8, "features": 6, "both": 20, "intermediate": 10}
SHAPES = {
    "linear": {"weight": (5, 6)},
    "layer_input": {"norm": (6,), "weight": (16, 6)},
    "layer_output": {"output": (6, 8), "norm": (6,), "gate_up": (20, 6), "down": (6, 10)},
}
ARGUMENTS = {
    "linear": ((3, 6),),
    "layer_input": ((3, 6), (3, 2), (3, 2)),
    "layer_output": ((3, 8), (3, 6)),
}


def asked_for(op: str) -> KernelQuery:
    sizes = {"layer_input": INPUT_SIZES, "layer_output": OUTPUT_SIZES}.get(op)
    return query(5, 6, op=op) if sizes is None else query(5, 6, op=op, sizes=sizes)


def made_of(op: str, **changes):
    weights = {name: torch.ones(shape) for name, shape in SHAPES[op].items()}
    return CpuPackedKernel().prepare(asked_for(op), {**weights, **changes}, {"eps": 1e-5})


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.double(),
        lambda t: t.half(),
        lambda t: t.to("meta"),
        lambda t: t[..., :-1],
        lambda t: t[:-1],
        lambda t: t[None],
    ],
)
@pytest.mark.parametrize(
    ("op", "index"), [(op, i) for op, shapes in ARGUMENTS.items() for i in range(len(shapes))]
)
def test_arguments_that_the_part_in_c_would_misread_are_refused(op, index, change):
    call = made_of(op).call
    given = [torch.ones(shape) for shape in ARGUMENTS[op]]
    assert torch.isfinite(call(*given)).all()
    if len(given) == 1 and change(given[0]).shape == (2, 6):  # fewer rows: of what?
        return
    given[index] = change(given[index])
    with pytest.raises(UnsupportedError, match="cpu_packed does not serve"):
        call(*given)


@pytest.mark.parametrize(
    "change", [lambda t: t.half(), lambda t: t[:-1], lambda t: t[None], lambda t: t.to("meta")]
)
@pytest.mark.parametrize(
    ("op", "name"), [(op, name) for op, shapes in SHAPES.items() for name in shapes]
)
def test_weights_that_the_part_in_c_would_misread_are_refused(op, name, change):
    weight = change(torch.ones(SHAPES[op][name]))
    with pytest.raises(UnsupportedError, match=f"weight {name} of {op}"):
        made_of(op, **{name: weight})


@pytest.mark.parametrize("bias", [torch.ones(4), torch.ones(5).half()])
def test_a_bias_that_the_part_in_c_would_misread_is_refused(bias):
    with pytest.raises(UnsupportedError, match="weight bias of linear"):
        made_of("linear", bias=bias)


@pytest.mark.parametrize("ids", [torch.tensor([1], dtype=torch.int32), torch.tensor([[1]])])
def test_ids_that_the_part_in_c_would_misread_are_refused(ids):
    with pytest.raises(UnsupportedError, match="list of rows"):
        made_of("linear").rows(ids)


@pytest.mark.parametrize(
    ("op", "changes"),
    [
        ("linear", {"out_features": 0}),
        ("layer_input", {"heads": 3}),
        ("layer_input", {"half_head": 1}),
        ("layer_output", {"both": 10}),
        ("layer_output", {"features": -6}),
    ],
)
def test_sizes_that_do_not_fit_together_are_rejected(op, changes):
    asked = asked_for(op)
    asked = replace(asked, sizes={**asked.sizes, **changes})
    found = answer(asked)
    assert isinstance(found, Rejected)
    assert {reason.field for reason in found.reasons} == {"sizes"}
    assert CpuPackedKernel().prepare(asked, {}, {"eps": 1e-5}) == found


@pytest.mark.parametrize("op", SHAPES)
def test_a_default_type_of_the_process_does_not_change_what_is_written(op):
    """The result has the room that the part in C needs."""
    made = made_of(op)
    given = [torch.ones(shape) for shape in ARGUMENTS[op]]
    right = made.call(*given)
    torch.set_default_dtype(torch.bfloat16)
    try:
        found = made.call(*given)
        rows = made.rows and made.rows(torch.tensor([1]))
    finally:
        torch.set_default_dtype(torch.float32)
    assert found.dtype is torch.float32
    assert torch.equal(found, right)
    assert rows is None or rows.dtype is torch.float32
