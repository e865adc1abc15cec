"""Plugin `weight_loader:gguf`.  torch is imported in `open`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from framework.contracts.base import Answer, Rejected, Rejection, Supported
from framework.contracts.model_source import ModelFiles
from framework.contracts.weight_loader import WeightLoader, WeightQuery, Weights
from framework.errors import ModelError

if TYPE_CHECKING:
    from framework_text.gguf_head import GgufHead

FORMATS = ("auto", "gguf", "dummy")


class GgufLoader(WeightLoader):
    """One file, or all parts of a split one."""

    def answer(self, query: WeightQuery) -> Answer:
        from framework_text.gguf_metadata import is_gguf

        reasons: list[tuple[str, object, str]] = []
        if query.load_format not in FORMATS:
            reasons.append(("load_format", query.load_format, "auto, gguf or dummy"))
        strange = [path.name for path in query.files if not is_gguf(path)]
        if strange or not query.files:
            reasons.append(("files", strange or "no files", "files that begin with GGUF's magic"))
        if not reasons:
            return Supported(note=f"{query.files[0].name}, by memory map")
        return Rejected(
            tuple(
                Rejection(
                    code=field, field=field, found=found, needed=needed, remedy="name a .gguf file"
                )
                for field, found, needed in reasons
            )
        )

    def config(
        self, root: Path, files: tuple[Path, ...]
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        from framework_torch.gguf.config import generation_config, model_config

        head = _joined(_heads(root, files))
        return model_config(head), generation_config(head)

    def open(self, model: ModelFiles) -> Weights:
        from framework_torch.gguf.weights import GgufWeights

        return GgufWeights(_heads(model.root, model.weights))


def _heads(root: Path, files: tuple[Path, ...]) -> list[GgufHead]:
    """The heads of all parts; ModelError if one is missing."""
    from framework_text.gguf_metadata import read_head

    if not files:
        raise ModelError(
            f"{root}: there is no GGUF file", expected="one file, or all parts of a split one"
        )
    heads = [read_head(path) for path in files]
    parts = heads[0].integer("split.count") or 1
    if parts != len(heads):
        raise ModelError(
            f"{files[0]} is one part of a split model and others are missing",
            expected=f"{parts} files",
            found=len(heads),
            mend="put all parts into one folder and name the first",
        )
    return heads


def _joined(heads: list[GgufHead]) -> GgufHead:
    """The metadata of the first part with the tensors of all."""
    from framework_text.gguf_head import GgufHead

    tensors = {name: info for head in heads for name, info in head.tensors.items()}
    return GgufHead(heads[0].path, heads[0].metadata, tensors)
