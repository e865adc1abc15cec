"""A random model with a real vocabulary: it writes whatever the grammar lets it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

pytest.importorskip("torch")

from framework import LLM

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


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., LLM]:
    """Makes the model, once for equal options; weights are made up from the seed."""
    root = tmp_path_factory.mktemp("random")
    (root / "config.json").write_text(json.dumps(CONFIG))
    made: dict[str, LLM] = {}
    closing = ExitStack()

    def make(**options: Any) -> LLM:
        key = repr(sorted(options.items()))
        if key not in made:
            made[key] = LLM(
                root,
                tokenizer="demo",
                load_format="dummy",
                **{"num_pages": 2048, **options},
            )
            closing.callback(made[key].close)
        return made[key]

    make.closing = closing  # type: ignore[attr-defined]
    return make


@pytest.fixture(scope="session", autouse=True)
def _closed(random_model: Any) -> Iterator[None]:
    yield
    random_model.closing.close()
