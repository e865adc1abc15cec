"""The proposer that the operator chose, loaded beside the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

from framework.contracts.model import AttentionLayer, Model
from framework.contracts.model_runner import RunnerContext
from framework.contracts.proposer import (
    ModelBuilder,
    ProposerContext,
    ProposerInfo,
    SpeculativeProposer,
)
from framework.errors import ConfigError
from framework.plugins.blame import blaming, expect, unfit


@dataclass(frozen=True, slots=True)
class LoadedProposer:
    """A proposer that has told what it needs.  max_drafts: per request and step."""

    proposer: SpeculativeProposer
    info: ProposerInfo
    max_drafts: int
    notes: tuple[str, ...]

    def with_layers(
        self, layers: Mapping[str, AttentionLayer], dtype: str, cache_dtype: str
    ) -> dict[str, AttentionLayer]:
        """The layers of the model and those of the proposer, which keep in `cache_dtype` what they
        would keep in `dtype`.  Raises PluginError for a name that both have."""
        both = sorted(layers.keys() & self.info.layers.keys())
        if both:
            raise unfit(
                self.proposer, "has layers under names of the model", "names of its own", both[:4]
            )
        own = {
            name: replace(layer, spec=replace(layer.spec, dtype=cache_dtype))
            if getattr(layer.spec, "dtype", None) == dtype
            else layer
            for name, layer in self.info.layers.items()
        }
        return {**layers, **own}


def load_proposer(
    context: RunnerContext, model: Model, dtype: str, device: str, build: ModelBuilder
) -> LoadedProposer | None:
    """None where none was chosen.  Raises PluginError, ConfigError, ModelError."""
    if context.proposer is None:
        return None
    made = context.registry.create("speculative_proposer", context.proposer, named=True)
    proposer = cast("SpeculativeProposer", made)
    if proposer.need == "model" and context.draft_model is None:
        raise ConfigError(
            f"speculative proposer {context.proposer!r} reads a model of its own",
            expected="speculative_model, a name, folder or file",
            found="none",
            mend='name it, as in speculative_config={"method": ..., "model": ...}',
        )
    if proposer.need == "tokens" and context.draft_model is not None:
        raise ConfigError(
            f"speculative proposer {context.proposer!r} reads no model of its own",
            expected="no speculative_model",
            found=context.draft_model.name,
            mend="leave speculative_model out, or choose another proposer",
        )
    with blaming(proposer, "loading"):
        answer = proposer.load(
            ProposerContext(
                target=model,
                files=context.model,
                draft_files=context.draft_model,
                max_drafts=context.max_drafts,
                max_slots=context.max_slots,
                max_len=context.max_model_len or model.max_model_len or 0,
                dtype=dtype,
                device=device,
                build=build,
            )
        )
    info = expect(proposer, "load", answer, ProposerInfo)
    note = f"drafts: up to {context.max_drafts} a step, proposed by {context.proposer}"
    return LoadedProposer(proposer, info, context.max_drafts, (note, *info.notes))
