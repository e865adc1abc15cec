"""Random adapters in PEFT's files, and models into which they are merged."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from framework.contracts.lora import Adapter, AdapterLimits, LowRank
from framework_lora.peft import PeftFormat

LIMITS = AdapterLimits(in_step=4, kept=8, rank=64)
PATIENCE = 120.0
LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def sizes_of(module: Any) -> tuple[int, int]:
    """(inputs, outputs) of a linear map, or of GPT-2's."""
    outputs, inputs = module.weight.shape
    return (inputs, outputs) if isinstance(module, torch.nn.Linear) else (outputs, inputs)


def random_adapter(
    reference: Any, rank: int, seed: int, ends: Sequence[str] = LINEARS, layers: str = ""
) -> Adapter:
    """Of all modules whose names end so, and hold `layers`; large enough to change every token."""
    random = torch.Generator().manual_seed(seed)
    updates = {}
    for name, module in reference.named_modules():
        if name.endswith(tuple(ends)) and hasattr(module, "weight") and layers in name:
            inputs, outputs = sizes_of(module)
            updates[name] = LowRank(
                down=torch.randn(rank, inputs, generator=random) * inputs**-0.5,
                up=torch.randn(outputs, rank, generator=random) * rank**-0.5,
                scale=0.125 * (1 + seed % 3),
            )
    assert updates
    return Adapter(updates=updates, base="a tiny model")


def merged(reference: Any, adapter: Adapter) -> Any:
    """A copy of the model with W + scale * B A."""
    changed = copy.deepcopy(reference)
    for name, update in adapter.updates.items():
        module = changed.get_submodule(name)
        added = update.scale * (update.up.double() @ update.down.double())
        if not isinstance(module, torch.nn.Linear):
            added = added.t()
        module.weight.data = (module.weight.data.double() + added).to(module.weight.dtype)
    return changed


def logits_of(reference: Any, ids: Sequence[int]) -> torch.Tensor:
    """[n, vocab]."""
    with torch.no_grad():
        return reference(torch.tensor([list(ids)])).logits[0].float()


def ready(runner: Any, number: int, root: Path) -> Mapping[str, Any]:
    """What the runner says of an adapter once it has been read, or could not be."""
    told = runner.control("adapters", {"action": "load", "id": number, "root": str(root)})
    until = time.monotonic() + PATIENCE
    while told["state"] == "loading":
        assert time.monotonic() < until
        time.sleep(0.001)
        told = runner.control("adapters", {"action": "state", "id": number})
    return told


# Architectures that only Transformers' modelling code serves.
OWN: Mapping[str, Mapping[str, Any]] = {
    "GPT2": {},
    "Phi3": {"original_max_position_embeddings": 128},
    "OPT": {"ffn_dim": 96, "word_embed_proj_dim": 64},
    "Mixtral": {"num_local_experts": 4, "sliding_window": None},
}


@pytest.fixture(scope="session")
def tiny_hf(
    tmp_path_factory: pytest.TempPathFactory, tiny_other: Callable[..., Any]
) -> Callable[[str], tuple[Path, Any]]:
    """tiny_hf(architecture) -> (folder, the same in Transformers), made once."""
    made: dict[str, tuple[Path, Any]] = {}

    def make(name: str) -> tuple[Path, Any]:
        if name not in made:
            root = tmp_path_factory.mktemp(name)
            made[name] = root, tiny_other(root, name, **OWN[name])
        return made[name]

    return make


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[Adapter], Path]:
    """Writes an adapter into a folder of its own."""
    count = iter(range(1000))

    def save(adapter: Adapter) -> Path:
        root = tmp_path / f"adapter{next(count)}"
        root.mkdir()
        PeftFormat(None).write(root, adapter)
        return root

    return save


@pytest.fixture
def lora() -> Any:
    """Functions that the tests share."""

    class Helpers:
        limits = LIMITS

    for function in (random_adapter, merged, logits_of, ready):
        setattr(Helpers, function.__name__, staticmethod(function))
    return Helpers


@pytest.fixture
def driver(tiny: Any, drive: Any, lora: Any) -> Any:
    driver = drive(tiny("llama").files, adapters=lora.limits)
    yield driver
    driver.runner.close()


@pytest.fixture
def good(tiny: Any, lora: Any) -> Adapter:
    return lora.random_adapter(tiny("llama").reference, 4, 1)
