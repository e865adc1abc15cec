"""An EAGLE head: a decoder layer that goes on from hidden state to hidden state.

Li et al. 2024, "EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty".  At position
i it reads the target's hidden state there and the token after it, and makes what the hidden state
of the next position will be; the target's own head reads a token from that.  The layer has a cache
of its own, position by position, in the pages of the requests.

    hidden   h0  h1  h2   | o2  o3       made by the head
    tokens       t1  t2  t3 | d4  d5     t3: the last certain one; d4 is read from o2
    inputs  (h0 t1)(h1 t2)(h2 t3)|(o2 d4)

What a page holds for its last position depends on the token after the page, which its name does not
tell: where another request goes on otherwise, one entry of its cache is off, and its drafts perhaps
with it; its tokens never.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from framework.contracts.attention_backend import AttentionParams
from framework.contracts.kv_cache_spec import FullAttentionSpec
from framework.contracts.model import AttentionLayer
from framework.contracts.proposer import (
    ComputedStep,
    ProposerContext,
    ProposerInfo,
    SpeculativeProposer,
)
from framework.contracts.step import I32
from framework.errors import ModelError
from framework_speculative.ragged import ragged
from framework_speculative.rounds import draft_rounds
from framework_speculative.sizes import hidden_size

if TYPE_CHECKING:
    import torch

    from framework_speculative.eagle_layers import EagleLayers

NAME = "eagle.{}"


class Eagle(SpeculativeProposer):
    """Reads files as the authors of EAGLE publish them, as safetensors."""

    need = "hidden_states"

    def load(self, context: ProposerContext) -> ProposerInfo:
        from framework_speculative.eagle_layers import EagleLayers

        files = context.draft_files
        if files is None:
            raise ModelError(
                "eagle reads a head",
                expected="speculative_model, a name or folder",
                found="none",
                mend='name it, as in speculative_config={"method": "eagle", "model": ...}',
            )
        self._target, self._device = context.target, context.device
        size = hidden_size(context.target, context.device)
        self._layers: EagleLayers = EagleLayers(files, size, context.target, context.device)
        shape = self._layers.shape
        spec = FullAttentionSpec(
            num_kv_heads=shape.kv_heads,
            head_size=shape.head_size,
            head_size_v=shape.head_size,
            dtype=context.dtype,
        )
        layer = AttentionLayer(
            spec=spec,
            num_heads=shape.heads,
            params=AttentionParams(scale=shape.head_size**-0.5),
        )
        names = [NAME.format(index) for index in range(shape.layers)]
        note = f"eagle head: {files.name}, {shape.layers} layers"
        return ProposerInfo(layers=dict.fromkeys(names, layer), notes=(note,))

    def propose(self, step: ComputedStep) -> Sequence[I32]:
        assert step.hidden is not None
        counts = (step.lengths - step.starts - step.sampled).astype(np.int32)
        rows, positions = ragged(step.starts, counts)
        after = step.tokens[step.slots[rows], positions + 1]
        made = self._forward(step, step.hidden, after, positions, step.slots, step.starts, counts)
        last = self._tensor((np.cumsum(counts) - 1)[step.wanted > 0])

        def advance(
            rows: np.ndarray, tokens: I32, positions: I32, hidden: torch.Tensor
        ) -> torch.Tensor:
            # The state before the token lies one place before it.
            at = positions - 1
            ones = np.ones(len(rows), np.int32)
            return self._forward(step, hidden, tokens, at, step.slots[rows], at, ones)

        return draft_rounds(step, made[last], self._layers.logits, advance)

    def _forward(
        self,
        step: ComputedStep,
        hidden: torch.Tensor,
        tokens: np.ndarray,
        positions: np.ndarray,
        slots: I32,
        starts: I32,
        counts: I32,
    ) -> torch.Tensor:
        assert step.forward is not None
        context = step.forward.context(slots, starts, counts)
        return self._layers.forward(hidden, self._tensor(tokens), self._tensor(positions), context)

    def _tensor(self, array: np.ndarray) -> Any:
        import torch

        return torch.from_numpy(array.astype(np.int64)).to(self._device)
