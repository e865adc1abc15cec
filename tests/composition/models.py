"""Tiny models, heads for them, and engines that are kept for a while."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from framework import LLM
from tests.composition.adapters import SEEDS, make_adapter
from tests.parity.tiny import Tiny, make_tiny

HIDDEN, VOCAB, HEADS, KV_HEADS, INNER = 64, 260, 4, 2, 80
KEPT = 6
"""Engines that are open at one time."""
USUAL: Mapping[str, Any] = {
    "model": "{llama}",
    "dtype": "float32",
    "num_pages": 256,
    "max_num_seqs": 16,
    "max_model_len": 112,
}


class Models:
    """Folders by name, made when they are first asked for: tiny models of `tests.parity.tiny`,
    "eagle" and "medusa", heads that guess at random, and "one" and "two", adapters of a model."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._tiny: dict[str, Tiny] = {}
        self._merged: dict[tuple[str, str], Any] = {}

    def tiny(self, name: str) -> Tiny:
        """With the same in Transformers."""
        if name not in self._tiny:
            self._tiny[name] = make_tiny(name, self._root / name)
        return self._tiny[name]

    def merged(self, name: str, adapter: str | None) -> Any:
        """A model of Transformers with an adapter in it."""
        if adapter is None:
            return self.tiny(name).model
        if (name, adapter) not in self._merged:
            folder = self._adapter_folder(name, adapter)
            self._merged[name, adapter] = make_adapter(adapter, self.tiny(name).model, folder)
        return self._merged[name, adapter]

    def _adapter_folder(self, name: str, adapter: str) -> Path:
        return self._root / "adapters" / name / adapter

    def folder(self, name: str, model: str) -> Path:
        """model: of which an adapter is."""
        if name in _HEADS:
            made = self._root / name
            if not made.is_dir():
                _save(made, *_HEADS[name]())
            return made
        if name in SEEDS:
            self.merged(model, name)
            return self._adapter_folder(model, name)
        return self.tiny(name).folder

    def filled(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options with folders in the place of their names in braces."""

        def fill(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {key: fill(one) for key, one in value.items()}
            if isinstance(value, str) and value.startswith("{") and value.endswith("}"):
                return str(self.folder(value[1:-1], options["model"][1:-1]))
            return value

        return {key: fill(value) for key, value in options.items()}


class Engines:
    """One for equal options; the one that was used the longest ago is closed."""

    def __init__(self, models: Models) -> None:
        self.models = models
        self._open: OrderedDict[str, Any] = OrderedDict()

    def get(self, options: Mapping[str, Any], make: Callable[..., Any] = LLM) -> Any:
        """Raises what its start raises."""
        options = {**USUAL, **options}
        key = f"{make.__name__} {json.dumps(options, sort_keys=True)}"
        if key not in self._open:
            while len(self._open) >= KEPT:
                self._open.popitem(last=False)[1].close()
            self._open[key] = make(**self.models.filled(options))
        self._open.move_to_end(key)
        return self._open[key]

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()


def _save(folder: Path, config: dict[str, Any], tensors: dict[str, Any]) -> None:
    from safetensors.torch import save_file

    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"architectures": ["Heads"], **config}))
    save_file(tensors, folder / "model.safetensors")


def _medusa() -> tuple[dict[str, Any], dict[str, Any]]:
    import torch

    made = {}
    generator = torch.Generator().manual_seed(1)
    for head in range(4):
        made[f"{head}.0.linear.weight"] = torch.randn(HIDDEN, HIDDEN, generator=generator) / 8
        made[f"{head}.0.linear.bias"] = torch.randn(HIDDEN, generator=generator)
        made[f"{head}.1.weight"] = torch.randn(VOCAB, HIDDEN, generator=generator)
    return {"medusa_num_heads": 4, "medusa_num_layers": 1}, made


def _eagle() -> tuple[dict[str, Any], dict[str, Any]]:
    import torch

    generator = torch.Generator().manual_seed(2)

    def random(*shape: int) -> Any:
        return torch.randn(*shape, generator=generator) / shape[-1] ** 0.5

    size = HIDDEN // HEADS
    made = {"fc.weight": random(HIDDEN, 2 * HIDDEN), "fc.bias": random(HIDDEN)}
    for name, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
        made[f"layers.0.self_attn.{name}_proj.weight"] = random(heads * size, HIDDEN)
    made["layers.0.self_attn.o_proj.weight"] = random(HIDDEN, HEADS * size)
    made["layers.0.mlp.gate_proj.weight"] = random(INNER, HIDDEN)
    made["layers.0.mlp.up_proj.weight"] = random(INNER, HIDDEN)
    made["layers.0.mlp.down_proj.weight"] = random(HIDDEN, INNER)
    made["layers.0.post_attention_layernorm.weight"] = 1 + random(HIDDEN)
    config = {
        "hidden_size": HIDDEN,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "num_hidden_layers": 1,
        "intermediate_size": INNER,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500.0,
    }
    return config, made


_HEADS = {"eagle": _eagle, "medusa": _medusa}
