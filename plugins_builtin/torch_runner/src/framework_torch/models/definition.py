"""The entry point of the native decoder; torch is imported when a model is built."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from framework.contracts.base import Answer, Rejected, Rejection
from framework.contracts.model import ArchitectureQuery, Model, ModelDefinition, ModelSupported
from framework.contracts.model_source import ModelFiles
from framework.contracts.weight_loader import Weights
from framework.errors import ModelError
from framework_torch.models.config import DecoderConfig, read_config
from framework_torch.models.families import FAMILIES


class DecoderDefinition(ModelDefinition):
    """Llama, Mistral, Qwen, Gemma and whatever names their architectures."""

    def answer(self, query: ArchitectureQuery) -> Answer:
        config = _read(query.architecture, query.config)
        if isinstance(config, Rejected):
            return config
        return ModelSupported(
            note=f"native decoder, {query.architecture}", parameters=config.parameters
        )

    def build(self, model: ModelFiles, weights: Weights | None, dtype: str, seed: int) -> Model:
        import torch

        from framework_torch.models.decoder import Decoder
        from framework_torch.models.fill import Filler
        from framework_torch.models.table import IGNORED, parameter_table, transforms

        architecture = (model.config.get("architectures") or ("",))[0]
        config = _read(architecture, model.config)
        if isinstance(config, Rejected):
            reasons = "; ".join(str(reason) for reason in config.reasons)
            raise ModelError(f"{model.name}: the decoder cannot build this model: {reasons}")
        with torch.device("meta"):
            decoder = Decoder(config)
        filler = Filler(
            decoder,
            parameter_table(config),
            dtype=getattr(torch, dtype),
            root=model.root,
            transforms=transforms(config),
            ignored=IGNORED,
            ones=frozenset({"rotary_divisors"}),
            norm=0.0 if config.family.norm_offset else 1.0,
        )
        if weights is None:
            filler.dummy(seed)
        else:
            filler.from_files(weights)
        return decoder.eval()


def _read(architecture: str, config: Mapping[str, Any]) -> DecoderConfig | Rejected:
    family = FAMILIES.get(architecture)
    if family is None:
        reason = Rejection(
            code="architecture",
            field="architecture",
            found=architecture,
            needed=f"one of {', '.join(sorted(FAMILIES))}",
            remedy="let another definition serve it",
        )
        return Rejected((reason,))
    return read_config(family, config)
