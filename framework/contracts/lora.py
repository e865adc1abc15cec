"""Kind `lora`: reads adapters of one file format, low-rank updates of a model's linear maps.

An adapter (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models") makes W x of a
linear map to W x + scale * B (A x), with A of r rows and B of r columns.  A format says what the
files of a folder hold.  Whether that fits the model and the limits of the operator, the model
runner checks; it also computes the updates, for the rows of a step that belong to requests with
that adapter and for no others.

`answer` is asked in the order of selection, for each folder that is to be loaded; the first that
supports it reads it, in a thread of its own.  A `read` that raises refuses the adapter, and
nothing else is affected.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from framework.contracts.base import Answer, Contract, Query, versioned

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterLimits:
    """What the operator allows: in_step: different adapters that are computed in one step.
    kept: adapters that are in memory at one time.  rank: of each update, the most."""

    in_step: int
    kept: int
    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterQuery(Query):
    """root: a folder on this machine.  files: names of what lies in it."""

    root: Path = versioned(since="1.0")
    files: frozenset[str] = versioned(since="1.0")


@dataclass(frozen=True, slots=True, kw_only=True)
class LowRank:
    """down: A, [r, in_features].  up: B, [out_features, r].  Both of any floating type and finite,
    without a gradient.  scale: of their product, finite."""

    down: torch.Tensor
    up: torch.Tensor
    scale: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """updates: by the name of the linear map in the model's checkpoint, without ".weight"
    ("model.layers.0.self_attn.q_proj").  base: the model for which it was made, for messages.
    selects: whether the files say that a map of this name has an update; the adapter is refused if
    the model has such a map and it has none.  None: they say nothing of that."""

    updates: Mapping[str, LowRank]
    base: str | None = None
    selects: Callable[[str], bool] | None = None


class AdapterFormat(Contract):
    """One way in which adapters are stored."""

    kind: ClassVar[str] = "lora"

    @abstractmethod
    def answer(self, query: AdapterQuery) -> Answer:
        """Whether that folder is of this format, by the names of its files; must not read them."""

    @abstractmethod
    def read(self, root: Path) -> Adapter:
        """All that the adapter changes.  Opens no file outside of `root`, and leaves none.

        Raises ModelError for what is missing or damaged, and UnsupportedError for an adapter that
        does more than such updates: nothing of it may be left out without a word.
        """

    @abstractmethod
    def write(self, root: Path, adapter: Adapter) -> None:
        """Store an adapter in an empty folder, so that `read` gives the same modules and numbers,
        in the same types.  Raises UnsupportedError for what the format has no way to write."""
