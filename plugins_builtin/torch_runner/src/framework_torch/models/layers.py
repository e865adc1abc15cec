"""Small building blocks of the native models.  T: tokens of a step, flattened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from framework.contracts.kernel import Prepared
from framework_torch.models.deferred import Deferring

ACTIVATIONS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": F.silu,
    "swish": F.silu,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
}

# What the operator layer_output calls them.
ACTIVATION_TRAITS: Mapping[str, frozenset[str]] = {
    "silu": frozenset(),
    "swish": frozenset(),
    "relu": frozenset(("relu",)),
    "gelu": frozenset(("gelu",)),
    "gelu_new": frozenset(("gelu_tanh",)),
    "gelu_pytorch_tanh": frozenset(("gelu_tanh",)),
}
assert ACTIVATION_TRAITS.keys() == ACTIVATIONS.keys()


class Operated(Deferring):
    """A use of an operator, see `framework.contracts.kernel.OperatorSite`.

    Until a kernel is adopted, `forward` computes plainly; then it is the kernel's own call, so
    that nothing stands between the model and the kernel.  num_bytes: of the weights as it is used.
    taken_by: takes what adapters change, where this is computed as a part of another use.
    """

    op: str
    shared = False
    num_bytes = 0
    parts: tuple[str, ...] = ()
    taken_by: Callable[[Any], None] | None = None

    def __init__(
        self,
        sizes: Mapping[str, int],
        *,
        constants: Mapping[str, float] | None = None,
        traits: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__()
        self.sizes, self.constants, self.traits = sizes, constants or {}, traits

    def weights(self) -> Mapping[str, torch.Tensor]:
        self.settle()
        return dict(self.named_parameters(recurse=False))

    def adopt(self, prepared: Prepared) -> None:
        self.num_bytes = prepared.num_bytes
        if prepared.keeps_weights:
            self.num_bytes += sum(weight.nbytes for weight in self.weights().values())
        else:
            self.release()
        self.forward = prepared.call

    def wrap(self, change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        """See `framework.contracts.model.AdapterSite`."""
        if self.taken_by is not None:
            self.taken_by(change)
            return
        inner = self.forward
        self.forward = lambda x: change(x, inner(x))

    def release(self) -> None:
        """Let the weights go."""
        for name in tuple(self._parameters):
            self.forget(name)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x / rms(x) * weight over the last axis; the mean is taken in float32 (Zhang and
    Sennrich 2019)."""
    wide = x.float()
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * (wide * scale).to(x.dtype)


def offset_rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Gemma's: the factor is 1 + weight, multiplied before the result is narrowed."""
    wide = x.float()
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (wide * scale * (1.0 + weight.float())).to(x.dtype)


class RMSNorm(Operated):
    """offset: Gemma's."""

    op = "rms_norm"

    def __init__(self, size: int, eps: float, offset: bool = False) -> None:
        traits = frozenset(("offset",) if offset else ())
        super().__init__({"features": size}, constants={"eps": eps}, traits=traits)
        self.weight = nn.Parameter(torch.empty(size), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        compute = offset_rms_norm if "offset" in self.traits else rms_norm
        return compute(x, self.weight, self.constants["eps"])


class Linear(Operated):
    """x [T, inputs] -> [T, outputs].  Weights come later, so nothing is initialised.

    op: "logits" for the one to the vocabulary.
    """

    def __init__(self, inputs: int, outputs: int, bias: bool, op: str = "linear") -> None:
        traits = frozenset(("bias",) if bias else ())
        super().__init__({"in_features": inputs, "out_features": outputs}, traits=traits)
        self.op = op
        self.weight = nn.Parameter(torch.empty(outputs, inputs), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(outputs), requires_grad=False) if bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight, self.bias)


class Head(Linear):
    """From hidden states to the vocabulary.  tied: the embedding of the same weight, or None."""

    def __init__(self, inputs: int, outputs: int, tied: Embedding | None) -> None:
        super().__init__(inputs, outputs, bias=False, op="logits")
        self.shared = tied is not None
        self._tied = (tied,)  # no submodule: it has a place of its own in the model

    def adopt(self, prepared: Prepared) -> None:
        (tied,) = self._tied
        if tied is not None and not prepared.keeps_weights:
            if prepared.rows is None:
                tied.settle()
            else:
                tied.read_from(prepared.rows)
        super().adopt(prepared)


class Embedding(Deferring):
    """ids [T] -> [T, size]; `scaled` multiplies by the root of the size, rounded to the type of
    the weights as Gemma was trained."""

    def __init__(self, count: int, size: int, scaled: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(count, size), requires_grad=False)
        self.scale = size**0.5 if scaled else None
        self._rows: Callable[[torch.Tensor], torch.Tensor] | None = None

    def read_from(self, rows: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Let the weight go, and take its rows from a kernel that has packed it."""
        self._rows = rows
        self.forget("weight")

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        rows = F.embedding(ids, self.weight) if self._rows is None else self._rows(ids)
        return rows if self.scale is None else rows * torch.tensor(self.scale).to(rows)


def softcapped(x: torch.Tensor, limit: float | None) -> torch.Tensor:
    """x squeezed into (-limit, limit) by tanh; None leaves it as it is."""
    return x if limit is None else limit * torch.tanh(x / limit)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn pairs (i, i + size / 2) of x [T, heads, size] by the angles of cos, sin
    [T, 1, size / 2]."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
