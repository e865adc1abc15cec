"""A smaller model of the same vocabulary, with a cache of its own in the pages of the requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from framework.contracts.proposer import (
    ComputedStep,
    ProposerContext,
    ProposerInfo,
    SpeculativeProposer,
)
from framework.contracts.step import I32
from framework.errors import ConfigError
from framework_speculative.ragged import ragged
from framework_speculative.rounds import draft_rounds

if TYPE_CHECKING:
    import torch

    from framework.contracts.model import AttentionLayer, ForwardContext, Model

PREFIX = "draft."


class DraftModel(SpeculativeProposer):
    """Computes what the target has computed, and then goes on by itself.

    Its tokens are drawn with the noise with which the target's will be: where both models agree on
    the probabilities, they agree on the token.
    """

    need = "model"

    def load(self, context: ProposerContext) -> ProposerInfo:
        assert context.draft_files is not None
        self._model: Model = context.build(context.draft_files)
        mine, target = self._model.vocab_size, context.target.vocab_size
        if mine != target:
            raise ConfigError(
                f"draft model {context.draft_files.name!r} has another vocabulary than the model",
                expected=f"{target} tokens",
                found=mine,
                mend="choose a draft model that was made for the same tokenizer",
            )
        self._device = context.device
        own = self._model.attention_layers(context.dtype)
        layers: Mapping[str, AttentionLayer] = {PREFIX + name: own[name] for name in own}
        note = f"draft model: {context.draft_files.name}, {len(layers)} layers"
        return ProposerInfo(layers=layers, notes=(note,))

    def propose(self, step: ComputedStep) -> Sequence[I32]:
        # With what drafts have left in the cache, and with the token that was sampled in the step
        # before: its page may not have been there yet.
        starts, counts = step.starts, step.lengths - step.starts
        rows, positions = ragged(starts, counts)
        slots = step.slots[rows]
        hidden = self._forward(
            step, step.tokens[slots, positions], positions, step.slots, starts, counts
        )
        last = self._tensor((np.cumsum(counts) - 1)[step.wanted > 0])

        def advance(
            rows: np.ndarray, tokens: I32, positions: I32, hidden: torch.Tensor
        ) -> torch.Tensor:
            ones = np.ones(len(rows), np.int32)
            return self._forward(step, tokens, positions, step.slots[rows], positions, ones)

        return draft_rounds(step, hidden[last], self._model.logits, advance)

    def _forward(
        self,
        step: ComputedStep,
        tokens: np.ndarray,
        positions: np.ndarray,
        slots: I32,
        starts: I32,
        counts: I32,
    ) -> torch.Tensor:
        assert step.forward is not None
        context = Renamed(step.forward.context(slots, starts, counts))
        hidden = self._model.embed(self._tensor(tokens))
        result: torch.Tensor = self._model.forward(hidden, self._tensor(positions), context)
        return result

    def _tensor(self, array: np.ndarray) -> Any:
        import torch

        return torch.from_numpy(array.astype(np.int64)).to(self._device)


class Renamed:
    """The context under the names that the draft model gives to its layers."""

    def __init__(self, context: ForwardContext) -> None:
        self._context = context

    def attend(self, layer: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return self._context.attend(PREFIX + layer, q, k, v)
