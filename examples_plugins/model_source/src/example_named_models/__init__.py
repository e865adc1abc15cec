"""A model source: names of your own for folders and files on this machine.

--plugin-option 'model_source.named.models={"small": "/models/a", "tiny": "/models/b.gguf"}'
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, Field

from framework.contracts.base import Answer, Rejected, Rejection, Supported
from framework.contracts.model_source import ModelQuery, ModelSource
from framework.errors import ModelError

SUFFIXES = (".safetensors", ".gguf", ".bin")


class Options(BaseModel, extra="forbid"):
    """What --plugin-option model_source.named.KEY=VALUE can set."""

    models: dict[str, Path] = Field(
        default_factory=dict, description="A name -> a folder, or a file with all weights."
    )


class NamedModels(ModelSource):
    """Knows the names of its option, and nothing else."""

    Options = Options

    def __init__(self, options: Options | None = None) -> None:
        super().__init__(options)
        self._models = (options or Options()).models

    def answer(self, query: ModelQuery) -> Answer:
        if query.name in self._models:
            return Supported(note=str(self._models[query.name]))
        return Rejected(
            (
                Rejection(
                    code="name",
                    field="name",
                    found=query.name,
                    needed=f"one of {sorted(self._models)}",
                    remedy="add it to the option model_source.named.models",
                ),
            )
        )

    def fetch(self, query: ModelQuery) -> tuple[Path, tuple[Path, ...]]:
        path = self._models.get(query.name)
        if path is None or not path.exists():
            raise ModelError(
                f"there is no model {query.name!r}",
                expected="a name of the option model_source.named.models, and its file or folder",
                found="no such name" if path is None else f"nothing at {path}",
                mend="correct the option, or the name",
            )
        if query.revision is not None:
            raise ModelError(
                f"{query.name!r} has no revisions",
                found=query.revision,
                mend="leave the revision out, or give each one a name",
            )
        path = path.absolute()
        if path.is_file():
            return path.parent, (path,)
        if not query.want_weights:
            return path, ()
        weights = [sorted(path.glob(f"*{suffix}")) for suffix in SUFFIXES]
        found = next((files for files in weights if files), None)
        if found is None:
            raise ModelError(
                f"{path} holds no weights", expected=" or ".join(f"*{s}" for s in SUFFIXES)
            )
        return path, tuple(found)
