"""Kind `weight_loader`: reads one format of weights by memory map."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from framework.contracts.base import Answer, Contract, Query, versioned

if TYPE_CHECKING:
    import torch

    from framework.contracts.model_source import ModelFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightQuery(Query):
    """root: folder.  files: weight files (may be empty).  load_format: "auto" or a name."""

    root: Path = versioned(since="1.0")
    files: tuple[Path, ...] = versioned(since="1.0")
    load_format: str = versioned(since="1.0", neutral="auto")


class Weights(Protocol):
    """Tensors by the names of their file.  `naming` says whose names: "hf" or "gguf"."""

    naming: str

    def names(self) -> Iterator[str]: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def source(self, name: str) -> str:
        """Where the tensor lies (path of its file), for messages."""
        ...

    def get(self, name: str) -> torch.Tensor:
        """The tensor, dequantized, row-major as torch's Linear wants it; a view of the map
        where the format allows.  Raises ModelError if the file is damaged."""
        ...


class RowWeights(Weights, Protocol):
    """Weights of which some rows can be read alone; of others they are cut out of the whole."""

    def rows(self, name: str, start: int, stop: int) -> torch.Tensor:
        """Rows [start, stop) of `get(name)`, as it gives them, and no more memory than they take.
        Of a tensor with no axis, or an end out of range, nothing is asked."""
        ...


class WeightLoader(Contract):
    """One format."""

    kind: ClassVar[str] = "weight_loader"

    @abstractmethod
    def answer(self, query: WeightQuery) -> Answer:
        """Whether these files are of this loader's format.  Reads at most their heads."""

    @abstractmethod
    def config(
        self, root: Path, files: tuple[Path, ...]
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """(config, generation config) in Transformers' words.  Does not import torch.

        Raises ModelError if a file is missing, damaged or of an unknown architecture.
        """

    @abstractmethod
    def open(self, model: ModelFiles) -> Weights:
        """Open by memory map."""
