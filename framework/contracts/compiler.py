"""Kind `compiler`: makes pieces of a model into code for the machine at hand.

A piece is a function of tensors that a model calls again and again, such as all that a decoder
layer does before its attention; weights are arguments like any other, so that layers which differ
in their weights alone share one piece of code.  The first dimension of some arguments, their rows,
differs from call to call; a piece says between which numbers, and the same function may be compiled
for several ranges of rows.

The runner keeps what `compile` gives in files, under a name that tells all that it depends on:
model, configuration, the sources of the function, versions, and what `identity` says, beside
a digest: `load` never gets a byte of it changed.  It refuses what was not made by `compile` or is
cut short all the same.

`answer` may come from `framework explain` too: it must not import a tensor library.  Where a
compiler cannot serve and the operator asked for one, the engine does not start.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from framework.contracts.base import Answer, Contract, Query, versioned

if TYPE_CHECKING:
    from framework.contracts.platform import DeviceFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerQuery(Query):
    """platform, device, capability, features: as in DeviceFacts.  dtype: of activations, as torch
    writes it."""

    platform: str = versioned(since="1.0")
    device: str = versioned(since="1.0")
    capability: tuple[int, int] | None = versioned(since="1.0", neutral=None)
    features: frozenset[str] = versioned(since="1.0", neutral=frozenset())
    tensor_api: str = versioned(since="1.0", default="torch")
    dtype: str = versioned(since="1.0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """A tensor that a piece gets.  shape: of its dimensions, None where the rows are.  dtype: as
    torch writes it.  It is contiguous whenever it is passed."""

    shape: tuple[int | None, ...]
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What is compiled.

    name: for messages.  function: of tensors, in the order of `arguments`, to one tensor; it
    changes none of them, keeps nothing, and can be pickled, so that a compiler may work in a
    process of its own.  device: of all tensors.  least, most: the numbers of rows that a call may
    have, at least one; no `most` is any number.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[Argument, ...]
    device: str = "cpu"
    least: int = 1
    most: int | None = None


class Compiler(Contract):
    """One way to compile.  An instance keeps nothing of what it compiled."""

    kind: ClassVar[str] = "compiler"

    @abstractmethod
    def answer(self, query: CompilerQuery) -> Answer:
        """`Supported`, or all reasons why not; a program that it needs and that is missing here is
        one, with what to install."""

    @abstractmethod
    def identity(self) -> str:
        """All that compiled code depends on beside its piece: versions of libraries and programs,
        the processor, the number of threads.  The same text where code of one place may run in the
        other, and only there."""

    @abstractmethod
    def compile(self, pieces: Sequence[Piece]) -> Sequence[bytes]:
        """Code of each piece, in their order, for any process with the same identity.

        Effect: none but on the time; what it writes on the way it removes.  Raises
        UnsupportedError, with what the compiler said, for a piece that it cannot compile.
        """

    @abstractmethod
    def load(self, code: bytes) -> Callable[..., Any]:
        """What computes the piece that `code` was made of: its tensors -> a new contiguous tensor,
        as the function's but for rounding.

        Must not compile.  Raises ModelError, with the mend, for what `compile` did not make, and
        for less than the whole of what it made.
        """


def usual_queries(facts: DeviceFacts) -> tuple[CompilerQuery, ...]:
    """What `framework explain compiler` asks."""
    return (
        CompilerQuery(
            platform=facts.name,
            device=facts.device,
            capability=facts.capability,
            features=facts.features,
            dtype=facts.dtypes[0],
        ),
    )
