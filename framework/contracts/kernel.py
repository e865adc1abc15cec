"""Kind `kernel`: named operators such as "linear"; one is chosen for each use in a model.

A model publishes its uses of operators (`OperatorSite`).  Once the weights are there and on their
device, the runner asks every kernel one query per use, and the first in the order of selection
prepares the weights; the model then holds `Prepared.call` and calls it directly, so that a kernel
costs a step nothing but its work.  A kernel may change the form of the weights (packing); what the
model then needs no more is freed.

`answer` may come from `framework explain` too: it must not import torch.  An operator, a trait or
a quantization that a kernel does not know it rejects: a new one takes no new contract.  An error in
`prepare` stops the start; one in `Prepared.call` fails the step and stops the engine.

Operators of this release are the rows of `OPERATORS`.  A model and a kernel of one author may have
further ones between them; their names begin with the author's and a dot ("mine.fused_mlp").
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from framework.contracts.base import Answer, Contract, Query, Rejected, Supported, versioned
from framework.contracts.weight_rows import as_tensors

if TYPE_CHECKING:
    import torch

    from framework.contracts.platform import DeviceFacts
    from framework.contracts.weight_rows import WeightRows


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """What all kernels of one operator agree on.

    call: arguments and result of `Prepared.call`.  weights: names and shapes of what `prepare`
    gets; those in brackets only with the trait of the same name.  constants: numbers that it
    gets.  traits: variants that a use may have.  quantizable: its
    weights may be kept with less than they came with.  usual: sizes in an ordinary small decoder.
    """

    call: str
    weights: Mapping[str, str]
    constants: tuple[str, ...] = ()
    traits: tuple[str, ...] = ()
    quantizable: bool = False
    usual: Mapping[str, int]


_LINEAR = Operator(
    call="x [T, in_features] -> [T, out_features]: x times weight transposed, plus bias",
    weights={"weight": "[out_features, in_features]", "[bias]": "[out_features]"},
    traits=("bias",),
    quantizable=True,
    usual={"in_features": 576, "out_features": 1536},
)

OPERATORS: Mapping[str, Operator] = {
    "linear": _LINEAR,
    # A linear from hidden states to the vocabulary: few rows, a large weight that the embedding
    # often shares; worth a choice of its own.
    "logits": Operator(
        call=_LINEAR.call,
        weights=_LINEAR.weights,
        traits=_LINEAR.traits,
        quantizable=True,
        usual={"in_features": 576, "out_features": 49152},
    ),
    "rms_norm": Operator(
        call="x [..., features] -> the same: x / sqrt(mean(x^2) + eps) * weight, over the last "
        "axis; with the trait `offset`, times 1 + weight",
        weights={"weight": "[features]"},
        constants=("eps",),
        traits=("offset",),
        usual={"features": 576},
    ),
    # What a decoder layer does before and after attention, as one call each.
    "layer_input": Operator(
        call="x [T, features], cosines and sines [T, half_head] -> [T, out_features], queries, "
        "keys and values of heads, kv_heads and kv_heads heads of head_size: RMS norm of x, "
        "times weight transposed, plus bias; then queries and keys head by head: RMS norm if there "
        "is one, and pairs (i, i + half_head) turned by the angles",
        weights={
            "norm": "[features]",
            "weight": "[out_features, features]",
            "[bias]": "[out_features]",
            "[q_norm]": "[head_size]",
            "[k_norm]": "[head_size]",
        },
        constants=("eps",),
        traits=("bias", "q_norm", "k_norm", "offset"),
        quantizable=True,
        usual={
            "features": 576,
            "out_features": 960,
            "heads": 9,
            "kv_heads": 3,
            "head_size": 64,
            "half_head": 32,
        },
    ),
    "layer_output": Operator(
        call="attended [T, in_features], x [T, features] -> [T, features]: y = x + attended times "
        "output transposed, plus bias; then y + (f(gate) * up) times down transposed, plus bias, "
        "with gate and up the halves of the RMS norm of y times gate_up transposed, plus bias.  f: "
        "silu, or what a trait names.  What is added passes through an RMS norm if there is one",
        weights={
            "output": "[features, in_features]",
            "[output_bias]": "[features]",
            "norm": "[features]",
            "gate_up": "[both, features]",
            "[gate_up_bias]": "[both]",
            "down": "[features, intermediate]",
            "[down_bias]": "[features]",
            "[attention_end_norm]": "[features]",
            "[mlp_end_norm]": "[features]",
        },
        constants=("eps",),
        traits=(
            "output_bias",
            "gate_up_bias",
            "down_bias",
            "attention_end_norm",
            "mlp_end_norm",
            "offset",
            "relu",
            "gelu",
            "gelu_tanh",
        ),
        quantizable=True,
        usual={"in_features": 576, "features": 576, "both": 3072, "intermediate": 1536},
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelQuery(Query):
    """One use of an operator.

    platform, device, capability, features: as in DeviceFacts.  dtype: of activations in and out;
    weight_dtype: of the weights that `prepare` gets; as torch writes them.  sizes, traits: see
    the operator; sizes are those of this rank's shard.  quantization: how weights are to be
    kept, as the operator of the engine asked, None for numbers of a type; "int8": whole numbers
    times a scale of their output.  keep_once: something
    else reads rows of the same weight, so that a kernel which keeps it in another form must
    give `Prepared.rows`, or reject.  row_independent: a row of the result must not depend, not
    by a bit, on how many and which rows come with it: promise that in the answer, or reject.
    lossless: weights must be kept as exactly as they are given.
    """

    op: str = versioned(since="1.0")
    platform: str = versioned(since="1.0")
    device: str = versioned(since="1.0")
    capability: tuple[int, int] | None = versioned(since="1.0", neutral=None)
    features: frozenset[str] = versioned(since="1.0", neutral=frozenset())
    tensor_api: str = versioned(since="1.0", default="torch")
    dtype: str = versioned(since="1.0")
    weight_dtype: str = versioned(since="1.0")
    sizes: Mapping[str, int] = versioned(since="1.0")
    traits: frozenset[str] = versioned(since="1.0", neutral=frozenset())
    quantization: str | None = versioned(since="1.0", neutral=None)
    keep_once: bool = versioned(since="1.0", neutral=False)
    row_independent: bool = versioned(since="1.0", neutral=False)
    lossless: bool = versioned(since="1.1", neutral=False)
    graph_mode: str = versioned(since="1.0", neutral="none")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSupported(Supported):
    """error: without quantization the result is off by at most `error` times the sum of the
    magnitudes of the terms that it is the sum of, and besides by what the type of the result cannot
    tell from zero.  Weights below `smallest` count there as that large, and in linear maps both
    weights and activations below `share` times the largest of their row.  packs: the weights are
    kept in another form, and the form given is freed.  row_independent: as in the query, also where
    it was not asked for."""

    error: float
    smallest: float = 0.0
    share: float = 0.0
    packs: bool = False
    row_independent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A kernel bound to weights.

    call: as the operator says; allocates its result, whose numbers lie side by side, and changes no
    argument.  Rows of arguments may lie apart in memory, there may be none.  keeps_weights: it
    still reads the tensors that `prepare` got.  num_bytes: of its own form of them.  rows: of a
    linear map, ids int64 [N] -> [N, in_features], rows of the weight as its own form holds them,
    or None.
    """

    call: Callable[..., Any]
    keeps_weights: bool = True
    num_bytes: int = 0
    rows: Callable[[Any], Any] | None = None


class OperatorSite(Protocol):
    """One use of an operator in a model; `Model.operators()` gives all by name.

    shared: something else in the model reads rows of the same weight; it takes `Prepared.rows` if
    the weights go.
    """

    op: str
    sizes: Mapping[str, int]
    traits: frozenset[str]
    constants: Mapping[str, float]
    shared: bool

    def weights(self) -> Mapping[str, torch.Tensor]:
        """The tensors that `prepare` shall get."""
        ...

    def adopt(self, prepared: Prepared) -> None:
        """Call `prepared.call` from now on; let the weights go unless it keeps them."""
        ...


class WholeSite(OperatorSite, Protocol):
    """A use that stands for others, and comes before them.

    parts: their names.  It takes their place if a kernel serves it; else each of them is computed
    on its own.
    """

    parts: Sequence[str]


class RowSite(OperatorSite, Protocol):
    """A use some of whose weights need not be there as a whole before somebody asks for them."""

    def sources(self) -> Mapping[str, torch.Tensor | WeightRows]:
        """What `Kernel.prepare_rows` shall get; by the same names as `weights`."""
        ...


class Kernel(Contract):
    """One way to compute one or several operators.  An instance may prepare many uses, and keeps
    nothing of them."""

    kind: ClassVar[str] = "kernel"

    @abstractmethod
    def answer(self, query: KernelQuery) -> Answer:
        """`KernelSupported`, or all reasons why not."""

    @abstractmethod
    def prepare(
        self,
        query: KernelQuery,
        weights: Mapping[str, torch.Tensor],
        constants: Mapping[str, float],
    ) -> Prepared | Rejected:
        """Bind to the weights of one use, for which `answer` has said yes.

        Rejected if their values do not allow it, or if torch lacks what it takes: then the next
        kernel in the order is asked, unless the operator named this one.  The weights must not
        be changed: they may be a read-only map of a file.
        """

    def prepare_rows(
        self,
        query: KernelQuery,
        weights: Mapping[str, torch.Tensor | WeightRows],
        constants: Mapping[str, float],
    ) -> Prepared | Rejected:
        """As `prepare`, for weights that may be made where they are read.

        This is what the runner calls.  Not overridden, it has them made as a whole; who overrides
        it and keeps weights, keeps what `WeightRows.whole` gave.
        """
        return self.prepare(query, as_tensors(weights), constants)


def usual_queries(facts: DeviceFacts) -> tuple[KernelQuery, ...]:
    """What `framework explain kernel` asks: each operator as an ordinary decoder uses it."""
    return tuple(
        KernelQuery(
            op=name,
            platform=facts.name,
            device=facts.device,
            capability=facts.capability,
            features=facts.features,
            dtype=facts.dtypes[0],
            weight_dtype=facts.dtypes[0],
            sizes=operator.usual,
        )
        for name, operator in OPERATORS.items()
    )
