"""Tiny random models, and what the tests share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from framework.contracts.model_runner import RunnerContext
from framework.contracts.model_source import ModelFiles
from framework.contracts.step import StepResult
from framework.plugins.registry import PluginRegistry
from framework.testing.driver import Driver
from framework_torch.options import TorchOptions
from framework_torch.runner import TorchRunner
from framework_torch.weights.safetensors_loader import SafetensorsLoader

VOCAB = 96
TINY: Mapping[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
NAMES = {
    "llama": ("LlamaConfig", {"attention_bias": True, "mlp_bias": True}),
    "mistral": ("MistralConfig", {"sliding_window": 6, "head_dim": 24}),
    "qwen2": (
        "Qwen2Config",
        {
            "use_sliding_window": True,
            "sliding_window": 5,
            "max_window_layers": 1,
            "tie_word_embeddings": True,
        },
    ),
    "qwen3": ("Qwen3Config", {"head_dim": 32, "rope_theta": 5000.0}),
    "gemma2": (
        "Gemma2Config",
        {
            "head_dim": 24,
            "sliding_window": 5,
            "query_pre_attn_scalar": 40,
            "attn_logit_softcapping": 1.5,
            "final_logit_softcapping": 3.0,
        },
    ),
    "gemma3": (
        "Gemma3TextConfig",
        {
            "head_dim": 24,
            "sliding_window": 6,
            "num_hidden_layers": 5,
            "sliding_window_pattern": 3,
            "query_pre_attn_scalar": 10,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 2000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 70.0},
            },
        },
    ),
}


@dataclass
class Tiny:
    """A saved model and the same in Transformers."""

    root: Path
    reference: Any

    @property
    def files(self) -> ModelFiles:
        return files_of(self.root)

    def log_softmax(self, ids: Sequence[int]) -> np.ndarray:
        """[n, vocab]: of the token after each of `ids`."""
        with torch.no_grad():
            logits = self.reference(torch.tensor([list(ids)])).logits[0]
        return torch.log_softmax(logits.float(), -1).numpy()

    def greedy(self, ids: Sequence[int], count: int) -> list[int]:
        """Recomputed from the start for every token."""
        known = list(ids)
        for _ in range(count):
            known.append(int(self.log_softmax(known)[-1].argmax()))
        return known[len(ids) :]


def files_of(root: Path) -> ModelFiles:
    weights = tuple(sorted(root.glob("*.safetensors")))
    config, generation = SafetensorsLoader().config(root, weights)
    return ModelFiles(
        name="tiny",
        root=root,
        weights=weights,
        format="safetensors",
        config=config,
        generation_config=generation,
    )


def save_tiny(root: Path, name: str, **changes: Any) -> Tiny:
    class_name, own = NAMES[name]
    return Tiny(root, random_model(root, name, class_name, **{**TINY, **own, **changes}))


def random_model(root: Path, name: str, config: str, **sizes: Any) -> Any:
    """A random model that predicts tokens, of a class of Transformers' configurations; saved, and
    with Transformers' eager attention.  Another name gives other numbers."""
    import transformers

    torch.manual_seed(sum(name.encode()))
    made = getattr(transformers, config)(**sizes)
    kind = transformers.AutoModelForCausalLM
    model = kind.from_config(made, attn_implementation="eager").float().eval()
    for parameter in model.parameters():
        # Initialisers leave biases at 0, norms at 1 and logits flat; a test must see them all.
        parameter.data += 0.05 * torch.randn_like(parameter)
    model.save_pretrained(root)
    return model


@pytest.fixture(scope="session")
def tiny_other() -> Callable[..., Any]:
    """tiny_other(root, architecture, **changes): a random model of an architecture that only
    Transformers' modelling code serves, saved, as Transformers' own."""
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}

    def make(root: Path, name: str, **changes: Any) -> Any:
        return random_model(root, name, f"{name}Config", **{**TINY, **special, **changes})

    return make


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Tiny]:
    """tiny(name, **changes of the configuration) -> Tiny, made once."""
    made: dict[str, Tiny] = {}

    def make(name: str, **changes: Any) -> Tiny:
        key = f"{name} {sorted(changes.items())}"
        if key not in made:
            made[key] = save_tiny(tmp_path_factory.mktemp(name), name, **changes)
        return made[key]

    return make


@pytest.fixture(scope="session")
def registry() -> PluginRegistry:
    return PluginRegistry()


def tokens_of(result: StepResult, row: int) -> list[int]:
    low, high = result.token_offsets[row : row + 2]
    return result.token_ids[low:high].tolist()


def whole(logprobs: Any, index: int) -> np.ndarray:
    """Log-probabilities of the whole vocabulary at one token, by id."""
    low, high = logprobs.offsets[index : index + 2]
    values = np.full(VOCAB, np.nan)
    values[logprobs.ids[low:high]] = logprobs.values[low:high]
    return values


@pytest.fixture
def helpers() -> Any:
    """Functions that the tests share."""

    class Helpers:
        pass

    for function in (tokens_of, whole, files_of, save_tiny):
        setattr(Helpers, function.__name__, staticmethod(function))
    return Helpers


@pytest.fixture
def context(registry: PluginRegistry) -> Callable[..., RunnerContext]:
    def make(files: ModelFiles, **changes: Any) -> RunnerContext:
        given = {
            "dtype": "float32",
            "max_slots": 8,
            "max_step_tokens": 256,
            "max_model_len": None,
            "choices": {"platform": "cpu", "attention_backend": "sdpa"},
        }
        return RunnerContext(model=files, registry=registry, **{**given, **changes})

    return make


@pytest.fixture
def drive(context: Callable[..., RunnerContext]) -> Callable[..., Driver]:
    """drive(files, **changes of the context) -> a bound driver."""

    def make(
        files: ModelFiles,
        page_tokens: int | Sequence[int] = 4,
        layout: str = "page_outermost",
        options: TorchOptions | None = None,
        **changes: Any,
    ) -> Driver:
        runner = TorchRunner(options)
        info = runner.load(context(files, **changes))
        driver = Driver(runner, page_tokens=page_tokens, layout=layout)
        driver.bind(info)
        return driver

    return make
