"""Write the references of the real models beside this file: what transformers answers to the
prompts, greedily.

    python -m tests.parity.make_goldens [smollm2] [gemma3]
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.parity.gemma import gemma_file
from tests.parity.prompts import (
    GEMMA_OUTPUT_TOKENS,
    GEMMA_PROMPTS,
    MIN_GAP,
    OUTPUT_TOKENS,
    PROMPTS,
)
from tests.parity.reference import demo_file, gguf_reference, gguf_tokenizer, greedy

FOLDER = Path(__file__).parent


def smollm2() -> dict[str, Any]:
    rows = _rows(demo_file(), PROMPTS, OUTPUT_TOKENS)
    return {"model": "SmolLM2-135M-Instruct", **rows}


def gemma3() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        rows = _rows(gemma_file(Path(folder)), GEMMA_PROMPTS, GEMMA_OUTPUT_TOKENS)
    return {"model": "Gemma 3 270M, Q4_K_M", **rows}


GOLDENS: Mapping[str, Callable[[], dict[str, Any]]] = {"smollm2": smollm2, "gemma3": gemma3}


def _rows(path: Path, prompts: Sequence[str], count: int) -> dict[str, Any]:
    """References of all prompts whose tokens are beyond doubt; the others are counted."""
    model, tokenizer = gguf_reference(path), gguf_tokenizer(path)
    rows = []
    for prompt in prompts:
        reference = greedy(model, tokenizer.encode(prompt), count)
        if reference.gap < MIN_GAP:
            continue
        rows.append(
            {
                "text": prompt,
                "prompt": reference.prompt,
                "tokens": reference.tokens,
                "logprobs": [round(value, 6) for value in reference.logprobs],
                "gap": round(reference.gap, 5),
            }
        )
    return {"left_out": len(prompts) - len(rows), "rows": rows}


if __name__ == "__main__":
    for name in sys.argv[1:] or GOLDENS:
        goldens = GOLDENS[name]()
        (FOLDER / f"{name}.json").write_text(json.dumps(goldens, indent=1) + "\n")
        print(f"{name}: {len(goldens['rows'])} references, {goldens['left_out']} left out")
