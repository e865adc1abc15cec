"""The linear maps of Transformers' modelling code that adapters may change.

Which they are is seen, not read: the model computes a row of tokens once, and a map counts that is
called once and gets all tokens in their order, be it as one sequence or as rows.  Experts get some
of the tokens, and a head none: an adapter for them is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from framework.contracts.model import AdapterSite
from framework_torch.hf import interface
from framework_torch.hf.model import run_decoder
from framework_torch.hf.observe import Observer

TOKENS = 67
"""So many that no expert gets all of them by chance."""
Change = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def adapter_sites(module: Any, decoder: nn.Module, first: int = 0) -> Mapping[str, AdapterSite]:
    """By the first name in `module`; a map under two names is one site.  decoder: the part that
    is run.  first: position of the first token, as the code counts."""
    names: dict[nn.Module, list[str]] = {}
    for name, part in module.named_modules(remove_duplicate=False):
        if isinstance(part, nn.Linear | Conv1D):
            names.setdefault(part, []).append(name)
    calls = _calls(module, decoder, first, list(names))
    return {
        own[0]: _site(part, own) for part, own in names.items() if calls.get(part, []) == [TOKENS]
    }


def _calls(
    module: Any, decoder: nn.Module, first: int, parts: list[nn.Module]
) -> Mapping[nn.Module, list[int]]:
    """How many tokens each part got, call by call."""
    seen: dict[nn.Module, list[int]] = {}

    def note(part: nn.Module, given: Any, result: torch.Tensor) -> None:
        x = given[0] if given else None
        rows = -1 if x is None or result is None else x.numel() // x.shape[-1]
        seen.setdefault(part, []).append(rows)

    table = module.get_input_embeddings().weight
    ids = torch.arange(TOKENS, device=table.device) * 7919 % len(table)
    hooks = [part.register_forward_hook(note) for part in parts]
    try:
        with torch.inference_mode(), interface.attending(Observer(longest=0, examine=False)):
            hidden = module.get_input_embeddings()(ids)
            run_decoder(decoder, hidden, torch.arange(TOKENS, device=table.device) + first)
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def _site(part: nn.Module, names: list[str]) -> AdapterSite:
    weight: Any = part.weight
    outputs, inputs = weight.shape if isinstance(part, nn.Linear) else weight.shape[::-1]

    def wrap(change: Change) -> None:
        def hook(module: nn.Module, given: Any, result: torch.Tensor) -> torch.Tensor:
            change(given[0].reshape(-1, inputs), result.view(-1, outputs))
            return result

        part.register_forward_hook(hook)

    return AdapterSite(
        in_features=inputs,
        out_features=outputs,
        parts=dict.fromkeys(names, (0, outputs)),
        wrap=wrap,
    )
