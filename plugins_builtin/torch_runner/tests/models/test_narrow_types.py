"""In 16-bit types the parts that need float32 have it: bit for bit as in Transformers."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.gemma3.modeling_gemma3 import (
    Gemma3TextScaledWordEmbedding as GemmaTextScaledWordEmbedding,
)
from transformers.models.llama.modeling_llama import LlamaRMSNorm, LlamaRotaryEmbedding

from framework_torch.models.config import read_config
from framework_torch.models.decoder import Decoder
from framework_torch.models.families import FAMILIES
from framework_torch.models.layers import Embedding, RMSNorm

NARROW = [torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", NARROW)
def test_the_mean_of_a_norm_is_taken_in_float32(dtype) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(8, 64).to(dtype), torch.randn(64).to(dtype)
    ours, theirs = RMSNorm(64, 1e-5), LlamaRMSNorm(64, 1e-5)
    ours.weight.data = theirs.weight.data = weight
    assert torch.equal(ours(x), theirs(x))


@pytest.mark.parametrize("dtype", NARROW)
def test_the_scale_of_an_embedding_is_rounded_as_gemma_was_trained(dtype) -> None:
    """33.94 is 34 in bfloat16."""
    torch.manual_seed(0)
    theirs = GemmaTextScaledWordEmbedding(8, 1152, 0, embed_scale=1152**0.5).to(dtype)
    ours = Embedding(8, 1152, scaled=True)
    ours.weight.data = theirs.weight.data
    ids = torch.arange(1, 8)
    assert torch.equal(ours(ids), theirs(ids))


@pytest.mark.parametrize("dtype", NARROW)
def test_far_positions_have_angles_of_their_own(dtype) -> None:
    config = LlamaConfig(
        vocab_size=8,
        hidden_size=32,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=100_000,
    )
    decoder = Decoder(read_config(FAMILIES["LlamaForCausalLM"], config.to_dict()))
    decoder.rotary_divisors.data.fill_(1.0)
    positions = torch.tensor([0, 1, 257, 4097, 70_001, 99_999])
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1, dtype=dtype), positions[None])
    for ours, theirs in zip(decoder._angles(positions, dtype)[0], (cos, sin), strict=True):
        assert torch.equal(ours, theirs[0, :, :8])
