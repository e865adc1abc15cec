"""Updates of adapters in one call: the bits of two linear maps, whatever comes with them."""

import pytest
import torch

from framework.contracts.base import Rejected
from framework.contracts.kernel import KernelQuery
from framework.errors import UnsupportedError
from framework_cpu_paged.packed_answer import LOW_RANK, OPS, answer

pytest.importorskip("framework_cpu_paged._native", reason="no C compiler built it")
from framework_cpu_paged.low_rank import blocks
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


@pytest.mark.parametrize("rows", [3, 400])
def test_zeros_between_the_parts_of_a_fused_map_change_nothing(threads, rows):
    """A part may lack an update, and B may have no block at all, or too many of them."""
    numbers = torch.Generator().manual_seed(9)
    down = torch.randn(12, INPUTS, generator=numbers)
    fused = torch.zeros(OUTPUTS, 12)
    fused[:30, :4] = torch.randn(30, 4, generator=numbers)
    fused[41:, 4:] = torch.randn(OUTPUTS - 41, 8, generator=numbers)
    many = torch.zeros(OUTPUTS, 12)
    many[torch.arange(OUTPUTS), torch.arange(OUTPUTS) % 12] = 1.0
    for up in (fused, many, torch.zeros(OUTPUTS, 12)):
        call = CpuPackedKernel().prepare(query(12), {"down": down, "up": up}, {}).call
        x, y = torch.randn(rows, INPUTS), torch.randn(rows, OUTPUTS)
        wanted = y + linear(up)(linear(down)(x))
        call(x, y, None)
        assert torch.equal(y, wanted)
    assert len(blocks(fused)) == 2
    assert len(blocks(many)) == 1


HEADS, KV_HEADS, HEAD, MIDDLE = 2, 1, 8, 24
HALVES = {
    "layer_input": (
        {
            "features": INPUTS,
            "out_features": (HEADS + 2 * KV_HEADS) * HEAD,
            "heads": HEADS,
            "kv_heads": KV_HEADS,
            "head_size": HEAD,
            "half_head": HEAD // 2,
        },
        {"weight": ("features", "out_features")},
        ("q_norm", "k_norm", "bias"),
    ),
    "layer_output": (
        {
            "in_features": HEADS * HEAD,
            "features": INPUTS,
            "both": 2 * MIDDLE,
            "intermediate": MIDDLE,
        },
        {
            "output": ("in_features", "features"),
            "gate_up": ("features", "both"),
            "down": ("intermediate", "features"),
        },
        ("attention_end_norm", "mlp_end_norm", "output_bias"),
    ),
}


class Half:
    """Random weights of what stands before or behind attention, and what two adapters change."""

    def __init__(self, op: str, traits: tuple[str, ...]) -> None:
        self.numbers = torch.Generator().manual_seed(4)
        self.sizes, maps, _ = HALVES[op]
        self.op, self.traits, self.weights = op, frozenset(traits), {}
        for key, text in OPS[op].weights.items():
            name = key.strip("[]")
            if name == key or name in traits:
                self.weights[name] = self.random(
                    *(self.sizes[s] for s in text.strip("[]").split(", "))
                )
        self.updates = [
            {
                name: (self.random(rank, self.sizes[i]), self.random(self.sizes[o], rank))
                for name, (i, o) in maps.items()
                if (name, rank) != ("gate_up", 2)  # one without
            }
            for rank in (2, 9)
        ]

    def random(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self.numbers) * shape[-1] ** -0.5

    def args(self, rows: int) -> list[torch.Tensor]:
        widths = ("features", "half_head", "half_head")
        if self.op == "layer_output":
            widths = ("in_features", "features")
        return [self.random(rows, self.sizes[width]) * 4 for width in widths]

    def prepared(self, weights):
        asked = KernelQuery(op=self.op, sizes=self.sizes, traits=self.traits, **COMMON)
        return CpuPackedKernel().prepare(asked, weights, {"eps": 1e-5}).call

    def merged(self, adapter: int):
        """With one of them in the weights."""
        changed = {
            n: self.weights[n] + up @ down for n, (down, up) in self.updates[adapter].items()
        }
        return self.prepared({**self.weights, **changed})

    def low_rank(self, adapter: int, name: str):
        down, up = self.updates[adapter][name]
        sizes = {"in_features": down.shape[1], "rank": len(down), "out_features": len(up)}
        asked = query(len(down), sizes=sizes)
        return CpuPackedKernel().prepare(asked, {"down": down, "up": up}, {}).call


@pytest.mark.parametrize("op", list(HALVES))
@pytest.mark.parametrize("rows", [5, 450])
def test_halves_of_a_layer_add_updates_where_their_maps_are(threads, op, rows):
    """Each row has the numbers of the weights into which its adapter was merged, and the bits that
    it has alone; rows of no adapter those without any.  450: more than are computed at a time."""
    for traits in ((), HALVES[op][2]):
        half = Half(op, traits)
        call, args = half.prepared(half.weights), half.args(rows)
        owner = torch.arange(rows) % 3  # 2: none
        made = [{n: half.low_rank(i, n) for n in u} for i, u in enumerate(half.updates)]
        at = [torch.nonzero(owner == i).flatten() for i in range(2)]
        updates = {
            name: [(some[name], at[i]) for i, some in enumerate(made) if name in some]
            for name in HALVES[op][1]
        }
        found = call.updated(*args, updates)
        plain = call(*args)
        assert torch.equal(found[owner == 2], plain[owner == 2])
        for adapter in range(2):
            wanted = half.merged(adapter)(*args)[owner == adapter]
            torch.testing.assert_close(found[owner == adapter], wanted, rtol=0, atol=1e-4)
            assert (found[owner == adapter] - plain[owner == adapter]).abs().max() > 0.1
            row = int(at[adapter][-1])
            one = [arg[row : row + 1] for arg in args]
            own = {name: [(update, None)] for name, update in made[adapter].items()}
            assert torch.equal(call.updated(*one, own)[0], found[row])


@pytest.mark.parametrize("op", list(HALVES))
def test_halves_of_a_layer_refuse_updates_of_others_and_rows_that_are_not_there(op):
    half = Half(op, ())
    call, args = half.prepared(half.weights), half.args(4)
    name = next(iter(half.updates[0]))
    good, strange = (
        half.low_rank(0, name),
        query(8, sizes={"in_features": 5, "rank": 1, "out_features": 5}),
    )
    other = (
        CpuPackedKernel()
        .prepare(strange, {"down": torch.ones(1, 5), "up": torch.ones(5, 1)}, {})
        .call
    )
    for bad in (other, lambda x, y, at: None):
        with pytest.raises(UnsupportedError, match="set of updates"):
            call.updated(*args, {name: [(bad, None)]})
    for at in ([4], [-1]):
        with pytest.raises(IndexError, match="of 4"):
            call.updated(*args, {name: [(good, torch.tensor(at))]})


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
