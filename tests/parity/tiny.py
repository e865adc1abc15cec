"""Tiny random models of each architecture, made with transformers' own classes."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.parity.prompts import MIN_GAP
from tests.parity.reference import Reference, greedy

NATIVE = ("llama", "qwen2", "qwen3", "mistral", "mistral_window")
THROUGH_TRANSFORMERS = ("phi3", "olmo2", "gpt_neox")
VOCABULARY = 260
OUTPUT_TOKENS = 24

_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    # Larger than usual, so that the best token is best by a clear margin.
    "initializer_range": 0.3,
    "bos_token_id": 0,
    "eos_token_id": 259,
    "pad_token_id": 0,
}
_MORE: dict[str, dict[str, Any]] = {
    "llama": {"tie_word_embeddings": True},
    "qwen2": {"tie_word_embeddings": False},
    "qwen3": {"head_dim": 32},
    "mistral": {"sliding_window": None},
    "mistral_window": {"model_type": "mistral", "sliding_window": 12},
    "phi3": {},
    "olmo2": {},
    "gpt_neox": {"rotary_pct": 0.5},
}


@dataclass(frozen=True)
class Tiny:
    """folder: safetensors and config.json.  references: by prompt."""

    name: str
    folder: Path
    model: Any
    references: list[Reference]


def make_tiny(name: str, folder: Path) -> Tiny:
    """Save a seeded random model and ask transformers for greedy answers to 10 prompts of
    1 to 60 tokens; answers that rounding may decide are left out."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    more = dict(_MORE[name])
    kind = more.pop("model_type", name)
    config = AutoConfig.for_model(kind, **_SIZES, **more)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    # Norms and biases start as ones and zeros, which would hide mistakes in them.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    _byte_tokenizer().save_pretrained(folder)
    rng = random.Random(1)
    lengths = (1, 2, 3, 7, 16, 17, 31, 32, 33, 60)
    prompts = [[rng.randrange(1, VOCABULARY - 1) for _ in range(n)] for n in lengths]
    references = [greedy(model, prompt, OUTPUT_TOKENS) for prompt in prompts]
    sure = [reference for reference in references if reference.gap >= MIN_GAP]
    assert len(sure) >= 6, f"too few clear references for {name}"
    return Tiny(name, folder, model, sure)


def _byte_tokenizer() -> Any:
    """One id per byte, then special tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<a>", "<b>", "<c>", "</s>"])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>")
