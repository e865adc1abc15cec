"""Updates of adapters in one call: the bits of two linear maps, whatever comes with them."""

import pytest
import torch

from framework.contracts.base import Rejected
from framework.contracts.kernel import KernelQuery
from framework.errors import UnsupportedError
from framework_cpu_paged.packed_answer import LOW_RANK, answer

pytest.importorskip("framework_cpu_paged._native", reason="no C compiler built it")
from framework_cpu_paged.packed_kernel import CpuPackedKernel

INPUTS, OUTPUTS = 40, 72
COMMON = {
    "platform": "cpu",
    "device": "cpu",
    "dtype": "float32",
    "weight_dtype": "float32",
    "row_independent": True,
    "lossless": True,
}


def query(rank: int, **changes) -> KernelQuery:
    sizes = {"in_features": INPUTS, "rank": rank, "out_features": OUTPUTS}
    return KernelQuery(**{"op": LOW_RANK, "sizes": sizes, **COMMON, **changes})


def linear(weight: torch.Tensor):
    sizes = {"in_features": weight.shape[1], "out_features": weight.shape[0]}
    asked = KernelQuery(op="linear", sizes=sizes, **COMMON)
    return CpuPackedKernel().prepare(asked, {"weight": weight}, {}).call


class Adapter:
    """Random A and B; both ways to compute with them."""

    def __init__(self, rank: int, seed: int) -> None:
        numbers = torch.Generator().manual_seed(seed)
        self.down = torch.randn(rank, INPUTS, generator=numbers)
        self.up = torch.randn(OUTPUTS, rank, generator=numbers)
        weights = {"down": self.down, "up": self.up}
        self.update = CpuPackedKernel().prepare(query(rank), weights, {}).call

    def by_two(self, x: torch.Tensor) -> torch.Tensor:
        return linear(self.up)(linear(self.down)(x))


ADAPTERS = [Adapter(rank, seed) for seed, rank in enumerate((8, 1, 48, 16))]


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("rows", [1, 5, 700])
def test_it_is_two_linear_maps_to_the_bit(threads, rows):
    for adapter in ADAPTERS:
        x, y = torch.randn(rows, INPUTS), torch.randn(rows, OUTPUTS)
        wanted = y + adapter.by_two(x)
        adapter.update(x, y, None)
        assert torch.equal(y, wanted)


@pytest.mark.parametrize("rows", [16, 900])
def test_rows_of_several_adapters_are_those_that_each_gives_alone(threads, rows):
    """Rows of none are left alone; x and y may be parts of wider tensors."""
    x = torch.randn(rows, INPUTS + 8)[:, 3 : INPUTS + 3]
    y = torch.randn(rows, OUTPUTS + 5)[:, :OUTPUTS]
    owner = torch.randint(-1, len(ADAPTERS), (rows,))
    wanted = y.clone()
    for index, adapter in enumerate(ADAPTERS):
        for row in torch.nonzero(owner == index).flatten().tolist():
            wanted[row] += adapter.by_two(x[row : row + 1])[0]
    updates = [(a.update, torch.nonzero(owner == i).flatten()) for i, a in enumerate(ADAPTERS)]
    updates[0][0].together(x, y, updates)
    assert torch.equal(y, wanted)


def test_many_rows_of_one_adapter_are_shared_by_all_threads(threads):
    x, y = torch.randn(3000, INPUTS), torch.zeros(3000, OUTPUTS)
    at = torch.arange(0, 3000, 2)
    ADAPTERS[2].update(x, y, at)
    assert torch.equal(y[at], ADAPTERS[2].by_two(x[at]))
    assert not y[1::2].any()


def test_what_it_reckons_with_is_checked_before_anything_changes():
    x, y = torch.randn(4, INPUTS), torch.zeros(4, OUTPUTS)
    update = ADAPTERS[0].update
    for at in ([0, 4], [-1], [2**40]):
        with pytest.raises(IndexError, match="of 4"):
            update(x, y, torch.tensor(at))
    other = CpuPackedKernel().prepare(
        query(2, sizes={"in_features": INPUTS, "rank": 2, "out_features": 16}),
        {"down": torch.zeros(2, INPUTS), "up": torch.zeros(16, 2)},
        {},
    )
    for args in (
        (x.double(), y, None),
        (x, y.half(), None),
        (x[:, :8], y, None),
        (x[:3], y, None),
        (x, torch.zeros(OUTPUTS, 4).T, None),
        (x, y, torch.tensor([0], dtype=torch.int32)),
        (x, y, torch.tensor([0, 1, 2, 3])[::2]),
    ):
        with pytest.raises(UnsupportedError):
            update(*args)
    with pytest.raises(UnsupportedError, match="set of updates"):
        update.together(x, y, [(update, torch.tensor([0])), (other.call, torch.tensor([1]))])
    assert not y.any()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"quantization": "int8"}, "quantization"),
        ({"dtype": "bfloat16"}, "dtype"),
        ({"traits": frozenset(("bias",))}, "traits"),
        ({"sizes": {"in_features": 4, "out_features": 4}}, "sizes"),
    ],
)
def test_what_it_cannot_do_is_rejected_by_name(changes, field):
    found = answer(query(8, **changes))
    assert isinstance(found, Rejected)
    assert field in [reason.field for reason in found.reasons]


def test_weights_of_other_shapes_are_refused():
    weights = {"down": torch.zeros(8, INPUTS), "up": torch.zeros(OUTPUTS, 4)}
    with pytest.raises(UnsupportedError, match="weight up"):
        CpuPackedKernel().prepare(query(8), weights, {})
