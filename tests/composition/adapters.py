"""LoRA adapters of the tiny models: PEFT's files, and the same merged in Transformers."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

SEEDS = {"one": 1, "two": 2}
RANKS = {"one": 4, "two": 9}


def make_adapter(name: str, model: Any, folder: Path) -> Any:
    """Write an adapter of every linear map but the head, large enough to change every token, into a
    folder that is made.  Returns the model into which it is merged.

    model: of Transformers, in float32; it is not changed.
    """
    import torch

    from framework.contracts.lora import Adapter, LowRank
    from framework_lora.peft import PeftFormat

    random = torch.Generator().manual_seed(SEEDS[name])
    merged, updates = copy.deepcopy(model), {}
    for module, part in merged.named_modules():
        if isinstance(part, torch.nn.Linear) and part is not merged.get_output_embeddings():
            outputs, inputs = part.weight.shape
            rank = RANKS[name]
            down = torch.randn(rank, inputs, generator=random) * inputs**-0.5
            up = torch.randn(outputs, rank, generator=random) * rank**-0.5
            updates[module] = LowRank(down=down, up=up, scale=0.5)
            whole = part.weight.data.double() + 0.5 * (up.double() @ down.double())
            part.weight.data = whole.float()
    folder.mkdir(parents=True)
    PeftFormat(None).write(folder, Adapter(updates=updates, base="a tiny model"))
    return merged
