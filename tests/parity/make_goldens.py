"""Write tests/parity/smollm2.json: what transformers answers to the prompts, greedily."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.parity.prompts import MIN_GAP, OUTPUT_TOKENS, PROMPTS
from tests.parity.reference import demo_reference, demo_tokenizer, greedy

GOLDENS = Path(__file__).parent / "smollm2.json"


def compute() -> dict[str, Any]:
    """References of all prompts whose tokens are beyond doubt; the others are counted."""
    model, tokenizer = demo_reference(), demo_tokenizer()
    rows = []
    unsure = 0
    for prompt in PROMPTS:
        reference = greedy(model, tokenizer.encode(prompt), OUTPUT_TOKENS)
        if reference.gap < MIN_GAP:
            unsure += 1
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
    return {"model": "SmolLM2-135M-Instruct", "left_out": unsure, "rows": rows}


if __name__ == "__main__":
    goldens = compute()
    GOLDENS.write_text(json.dumps(goldens, indent=1) + "\n")
    print(f"{len(goldens['rows'])} references, {goldens['left_out']} left out")
