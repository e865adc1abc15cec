"""Tiny random models of each architecture, made with transformers' own classes."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.parity.prompts import MIN_GAP
from tests.parity.reference import Reference, greedy

FULL = ("llama", "qwen2", "qwen3", "mistral")
WINDOWED = ("mistral_window", "qwen2_window", "gemma2", "gemma3")
NATIVE = (*FULL, *WINDOWED)
# Two without windows, one with a window on all layers, one with both kinds of layers.
THROUGH_TRANSFORMERS = ("gpt_neox", "olmo2", "phi3", "olmo3")
VOCABULARY = 260
OUTPUT_TOKENS, WINDOWED_OUTPUT_TOKENS = 17, 25
WINDOW = 12
# Around the ends of pages of 16 tokens.
PROMPT_LENGTHS = (1, 3, 16, 17, 31, 32, 33, 60)

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
    "mistral_window": {"model_type": "mistral", "sliding_window": WINDOW},
    "qwen2_window": {
        "model_type": "qwen2",
        "use_sliding_window": True,
        "sliding_window": WINDOW,
        "layer_types": ["full_attention", "sliding_attention"],
    },
    "gemma2": {
        "head_dim": 24,
        "sliding_window": WINDOW,
        "query_pre_attn_scalar": 40,
        "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 5.0,
        "tie_word_embeddings": False,
    },
    # Two groups of windowed layers and one without a window.
    "gemma3": {
        "model_type": "gemma3_text",
        "head_dim": 24,
        "num_hidden_layers": 3,
        "sliding_window": WINDOW,
        "sliding_window_pattern": 3,
        "query_pre_attn_scalar": 20,
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    },
    "phi3": {"sliding_window": WINDOW},
    "olmo2": {},
    "olmo3": {
        "sliding_window": WINDOW,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "gpt_neox": {"rotary_pct": 0.5},
}


@dataclass(frozen=True)
class Tiny:
    """folder: safetensors and config.json.  references: by prompt."""

    name: str
    folder: Path
    model: Any
    references: list[Reference]

    @property
    def output_tokens(self) -> int:
        return len(self.references[0].tokens)


def make_tiny(name: str, folder: Path) -> Tiny:
    """Save a seeded random model and ask transformers for greedy answers to a few prompts;
    answers that rounding may decide are left out."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    more = dict(_MORE[name])
    kind = more.pop("model_type", name)
    config = AutoConfig.for_model(kind, **{**_SIZES, **more})
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    # Norms and biases start as ones and zeros, which would hide mistakes in them.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
        if kind.startswith("gemma"):
            # It scales embeddings; with tied ones a loud token would only repeat itself.
            model.get_input_embeddings().weight.mul_(0.15)
    model.save_pretrained(folder)
    _byte_tokenizer().save_pretrained(folder)
    rng = random.Random(2)
    prompts = [[rng.randrange(1, VOCABULARY - 1) for _ in range(n)] for n in PROMPT_LENGTHS]
    count = WINDOWED_OUTPUT_TOKENS if "sliding_window" in more else OUTPUT_TOKENS
    references = [greedy(model, prompt, count) for prompt in prompts]
    sure = [reference for reference in references if reference.gap >= MIN_GAP]
    assert len(sure) >= 5, f"too few clear references for {name}"
    assert sure[-1].prompt == prompts[-1], f"the longest reference of {name} is not clear"
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
