"""An encoder of Transformers as a model of the torch runner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from framework.contracts.model import AdapterSite, AttentionLayer, ForwardContext
from framework.errors import UnsupportedError
from framework_torch.hf.interface import attending
from framework_torch.hf.model import AttentionStep, run_decoder
from framework_torch.hf.observe import AttentionFacts
from framework_torch.specs import EncoderAttentionSpec


class EncoderModel(nn.Module):
    """See `framework.contracts.model.Model`.  T flattened tokens of several prompts go through as
    a batch of one sequence; only attention mixes tokens, and attention is ours.

    hidden_size: of what `forward` gives.  first_position: the position of the first token, as the
    modelling code counts.
    """

    generates = False

    def __init__(
        self,
        encoder: Any,
        facts: Mapping[nn.Module, AttentionFacts],
        hidden_size: int,
        max_model_len: int | None,
        first_position: int = 0,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.facts = dict(facts)
        self.hidden_size = hidden_size
        self.vocab_size: int = len(encoder.get_input_embeddings().weight)
        self.max_model_len = max_model_len
        self.first_position = first_position

    def attention_layers(self, cache_dtype: str) -> Mapping[str, AttentionLayer]:
        return {
            facts.name: AttentionLayer(
                spec=EncoderAttentionSpec(
                    num_kv_heads=facts.num_kv_heads,
                    head_size=facts.head_size,
                    head_size_v=facts.head_size_v,
                ),
                num_heads=facts.num_heads,
                params=facts.params,
            )
            for facts in self.facts.values()
        }

    def adapter_sites(self) -> Mapping[str, AdapterSite]:
        from framework_torch.hf.adapter_sites import adapter_sites

        return adapter_sites(self.encoder, self.encoder, self.first_position)

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.encoder.get_input_embeddings()(ids)
        return hidden

    def forward(
        self,
        hidden: torch.Tensor,
        positions: torch.Tensor,
        context: ForwardContext,
        layers: range | None = None,
        taps: Sequence[int] = (),
    ) -> Any:
        """As in the contract.  Raises UnsupportedError for a part of the layers, and for taps."""
        if layers is not None or taps:
            raise UnsupportedError(
                "an encoder of Transformers' modelling code computes all of its layers at once",
                expected="layers=None and no taps",
                found=f"layers={layers}, taps={list(taps)}",
            )
        with attending(AttentionStep(context, self.facts)):
            return run_decoder(self.encoder, hidden, positions + self.first_position)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        raise UnsupportedError("an encoder has no logits", expected="requests that are pooled")
