"""Medusa heads: each reads one more of the next tokens from the hidden state of the last one.

Cai et al. 2024, "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding
Heads".  Of the tree that they verify this is the trunk: one draft per head.

    files   config.json: medusa_num_heads, medusa_num_layers
            {head}.{layer}.linear.weight, .bias     x + silu(linear(x)), medusa_num_layers times
            {head}.{medusa_num_layers}.weight       to the vocabulary
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from framework.contracts.proposer import (
    ComputedStep,
    ProposerContext,
    ProposerInfo,
    SpeculativeProposer,
)
from framework.contracts.step import I32
from framework.errors import ConfigError, ModelError
from framework_speculative.files import Tensors
from framework_speculative.sizes import hidden_size, whole

if TYPE_CHECKING:
    import torch

    Block = tuple[torch.Tensor, torch.Tensor]


class Medusa(SpeculativeProposer):
    """The i-th head reads the token i + 2 places after the one whose hidden state it is."""

    need = "hidden_states"

    def load(self, context: ProposerContext) -> ProposerInfo:
        files = context.draft_files
        if files is None:
            raise ModelError(
                "medusa reads heads",
                expected="speculative_model, a name or folder",
                found="none",
                mend='name it, as in speculative_config={"method": "medusa", "model": ...}',
            )
        number = whole(files, "medusa_num_heads")
        blocks = whole(files, "medusa_num_layers", 1)
        size, vocabulary = hidden_size(context.target, context.device), context.target.vocab_size
        if context.max_drafts > number:
            raise ConfigError(
                "there are more drafts a step than heads",
                expected=f"num_speculative_tokens of at most {number}",
                found=context.max_drafts,
                mend="lower num_speculative_tokens",
            )
        tensors = Tensors(files, context.device, "medusa_head.")
        self._heads: list[tuple[list[Block], torch.Tensor]] = []
        for head in range(number):
            layers = []
            for layer in range(blocks):
                name = f"{head}.{layer}.linear"
                weight = tensors.take(f"{name}.weight", size, size)
                layers.append((weight, tensors.take(f"{name}.bias", size)))
            self._heads.append((layers, tensors.take(f"{head}.{blocks}.weight", vocabulary, size)))
        tensors.check_empty()
        return ProposerInfo(notes=(f"medusa heads: {number} of {files.name}",))

    def propose(self, step: ComputedStep) -> Sequence[I32]:
        assert step.forward is not None
        assert step.hidden is not None
        # The hidden state from which the last token was sampled ends what a row has of them.
        ends = np.cumsum(step.lengths - step.starts - step.sampled) - 1
        drafts: list[list[int]] = [[] for _ in step.slots]
        for number in range(int(step.wanted.max(initial=0))):
            rows = np.flatnonzero(step.wanted > number)
            logits = self._logits(number, step.hidden[ends[rows].tolist()])
            positions = (step.lengths[rows] + number).astype(np.int32)
            before = [np.array(drafts[row], np.int32) for row in rows]
            tokens = step.forward.sample(logits, step.slots[rows], positions, before)
            for row, token in zip(rows.tolist(), tokens.tolist(), strict=True):
                drafts[row].append(token)
        return [np.array(ids, np.int32) for ids in drafts]

    def _logits(self, head: int, hidden: torch.Tensor) -> torch.Tensor:
        from torch.nn import functional

        layers, last = self._heads[head]
        x = hidden.float()
        for weight, bias in layers:
            x = x + functional.silu(functional.linear(x, weight, bias))
        return functional.linear(x, last)
