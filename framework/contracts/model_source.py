"""Kind `model_source`: turns what a user writes after `model=` into files on this machine."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from framework.contracts.base import Answer, Contract, Query, versioned


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelQuery(Query):
    """name: as written (an alias, a path, a hub id).  token: never shown in messages."""

    name: str = versioned(since="1.0")
    revision: str | None = versioned(since="1.0", neutral=None)
    token: str | None = versioned(since="1.0", neutral=None, secret=True)
    want_weights: bool = versioned(since="1.0", neutral=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """A model on disk.

    name: as written by the user.  root: folder, or the folder of a single file.
    weights: weight files in order.  format: "safetensors", "gguf", "pt" or "none".
    config: the architecture's configuration in the words of a Transformers config.json
        ("architectures", "hidden_size", ...), whatever the format on disk.
    generation_config: as generation_config.json, or empty.
    identity: a string that differs whenever the weights may differ.
    """

    name: str
    root: Path
    weights: tuple[Path, ...]
    format: str
    config: Mapping[str, Any]
    generation_config: Mapping[str, Any] = field(default_factory=dict)
    identity: str = ""
    trust_remote_code: bool = False


class ModelSource(Contract):
    """Finds a model.  Sources are asked in order of rank; the first that supports wins."""

    kind: ClassVar[str] = "model_source"

    @abstractmethod
    def answer(self, query: ModelQuery) -> Answer:
        """Whether this source knows the name, which may be any text.  Must not touch the network;
        every source is asked for every name."""

    @abstractmethod
    def fetch(self, query: ModelQuery) -> tuple[Path, tuple[Path, ...]]:
        """(folder, weight files in it).  May download; of weights that are not wanted only a file
        that is the configuration, too, as with GGUF.  Raises ModelError with the mend, also for
        a revision that does not exist.  No message shows the token."""
