"""The sampler: an ordered chain from logits to tokens.  Importing it imports torch."""

from __future__ import annotations

from framework_torch.sampler.chain import Sampler, SamplerOutput
from framework_torch.sampler.history import TokenTable

__all__ = ["Sampler", "SamplerOutput", "TokenTable"]
