"""A random model with a real vocabulary, and adapters that change what it says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

from framework import LLM
from framework.contracts.lora import Adapter, LowRank
from framework_lora.peft import PeftFormat

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "vocab_size": 49152,
    "tie_word_embeddings": False,
    "eos_token_id": 2,
    "bos_token_id": 1,
}
SIZES = {"self_attn.o_proj": (32, 32), "mlp.up_proj": (32, 32), "mlp.down_proj": (32, 32)}


def write_adapter(root: Path, seed: int, rank: int = 4) -> Path:
    """An adapter of the model in a folder, which is made; in its place, if there is one."""
    random = torch.Generator().manual_seed(seed)
    updates = {
        f"model.layers.0.{name}": LowRank(
            down=torch.randn(rank, inputs, generator=random),
            up=torch.randn(outputs, rank, generator=random),
            scale=2.0,
        )
        for name, (inputs, outputs) in SIZES.items()
    }
    root.mkdir(exist_ok=True)
    PeftFormat(None).write(root, Adapter(updates=updates, base="random"))
    return root


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("random")
    (root / "config.json").write_text(json.dumps(CONFIG))
    return root


@pytest.fixture(scope="session")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the adapters a, b and c."""
    root = tmp_path_factory.mktemp("adapters")
    for seed, name in enumerate("abc"):
        write_adapter(root / name, seed)
    return root


@pytest.fixture
def make(model: Path) -> Iterator[Callable[..., LLM]]:
    """Makes engines, and closes them after the test."""
    with ExitStack() as closing:

        def one(**options: Any) -> LLM:
            usual = {"enable_lora": True, "num_pages": 512, "page_size": 16}
            llm = LLM(model, tokenizer="demo", load_format="dummy", **{**usual, **options})
            closing.callback(llm.close)
            return llm

        yield one
