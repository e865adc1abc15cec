"""What the kit has to be told of the example `named`, whose models are those of its option."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from example_named_models import NamedModels, Options
from framework.contracts.model_source import ModelQuery
from framework.testing.conformance.suites.model_source import ModelSourceSuite


class NamedSuite(ModelSourceSuite):
    plugin = "model_source:named"
    small = Path("nowhere")

    def known(self, folder: Path) -> ModelQuery:
        self.small = folder / "small"
        self.small.mkdir()
        (self.small / "model.safetensors").write_bytes(b"")
        return ModelQuery(name="small")

    def unknown(self, folder: Path) -> Sequence[str]:
        return ("lost",)

    def make(self) -> NamedModels:
        return NamedModels(Options(models={"small": self.small, "lost": Path("nowhere/lost")}))
