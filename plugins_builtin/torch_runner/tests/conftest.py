"""Tiny random models, and a driver that makes step plans by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from framework.contracts.model_runner import RunnerContext
from framework.contracts.model_source import ModelFiles
from framework.contracts.sampling import SamplingParams
from framework.contracts.step import (
    NOTHING_LATE,
    AdmittedRequest,
    CacheGroup,
    CachePlan,
    LateInputs,
    PageUpdates,
    StepPlan,
    StepResult,
)
from framework.plugins.registry import PluginRegistry
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
    import transformers

    class_name, own = NAMES[name]
    torch.manual_seed(hash_of(name))
    config = getattr(transformers, class_name)(**{**TINY, **own, **changes})
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    for parameter in model.parameters():
        # Initialisers leave biases at 0, norms at 1 and logits flat; a test must see them all.
        parameter.data += 0.05 * torch.randn_like(parameter)
    model.save_pretrained(root)
    return Tiny(root, model)


def hash_of(name: str) -> int:
    return sum(name.encode())


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


@dataclass
class Sequence_:
    """What the driver knows of a request."""

    slot: int
    generation: int
    tokens: list[int]
    computed: int = 0
    pages: int = 0


ALL = SamplingParams(temperature=0.0, max_tokens=64, logprobs=-1)


@dataclass
class Driver:
    """Drives a runner with plans made by hand.  Pages are handed out in a shuffled order."""

    runner: TorchRunner
    page_tokens: int = 4
    num_pages: int = 80
    step: int = 0
    requests: dict[int, Sequence_] = field(default_factory=dict)
    pending: dict[str, list] = field(default_factory=lambda: {"admitted": [], "released": []})

    def bind(self, info: Any) -> None:
        spec = next(iter(info.layers.values()))
        layers = tuple(info.layers)
        self.runner.bind(
            CachePlan(
                groups=(CacheGroup(spec=spec, layers=layers, page_tokens=self.page_tokens),),
                num_pages=self.num_pages,
                page_bytes=len(layers) * spec.page_bytes(self.page_tokens),
                max_pages_per_request=-(-128 // self.page_tokens),
            )
        )
        order = np.random.default_rng(0).permutation(np.arange(1, self.num_pages))
        self.free = order.tolist()

    def admit(
        self, slot: int, tokens: Sequence[int], sampling: SamplingParams = ALL, **more: Any
    ) -> None:
        generation = more.pop("generation", 1)
        self.requests[slot] = Sequence_(slot, generation, list(tokens))
        self.pending["admitted"].append(
            AdmittedRequest(
                slot=slot,
                generation=generation,
                request_id=f"r{slot}",
                tokens=np.array(tokens, np.int32),
                num_prompt=more.pop("num_prompt", len(tokens)),
                sampling=sampling,
                seed=more.pop("seed", slot),
                **more,
            )
        )

    def release(self, slot: int) -> None:
        self.pending["released"].append((slot, self.requests.pop(slot).generation))

    def plan(
        self, *rows: tuple[int, int], drafts: Mapping[int, Sequence[int]] = {}, **more: Any
    ) -> StepPlan:
        """rows: (slot, new tokens, drafts among them).  Logits are wanted where the row ends
        at what the driver knows, or beyond with tokens still in flight."""
        self.step += 1
        wants, computed, updates = [], [], []
        for slot, new in rows:
            own = self.requests[slot]
            computed.append(own.computed)
            end = own.computed + new
            wants.append(end >= len(own.tokens))
            need = -(-end // self.page_tokens)
            taken = [self.free.pop() for _ in range(max(0, need - own.pages))]
            updates.append((slot, own.pages, taken, own.pages == 0))
            own.pages = max(own.pages, need)
            own.computed = end - len(drafts.get(slot, ()))
        ids = [page for _, _, taken, _ in updates for page in taken]
        pages = PageUpdates(
            slots=np.array([u[0] for u in updates], np.int32),
            starts=np.array([u[1] for u in updates], np.int32),
            counts=np.array([len(u[2]) for u in updates], np.int32),
            ids=np.array(ids, np.int32),
            replace=np.array([u[3] for u in updates], np.bool_),
        )
        plan = StepPlan(
            step_id=self.step,
            slots=np.array([slot for slot, _ in rows], np.int32),
            generations=np.array([self.requests[slot].generation for slot, _ in rows], np.int32),
            num_new=np.array([new for _, new in rows], np.int32),
            computed=np.array(computed, np.int32),
            wants_logits=np.array(wants, np.bool_),
            admitted=tuple(self.pending["admitted"]),
            released=tuple(self.pending["released"]),
            pages=(pages,),
            draft_counts=np.array([len(drafts.get(slot, ())) for slot, _ in rows], np.int32),
            draft_ids=np.array(
                [token for slot, _ in rows for token in drafts.get(slot, ())], np.int32
            ),
            features=frozenset(("drafts",)) if drafts else frozenset(),
            **more,
        )
        self.pending = {"admitted": [], "released": []}
        return plan

    def run(
        self,
        *rows: tuple[int, int],
        drafts: Mapping[int, Sequence[int]] = {},
        late: LateInputs = NOTHING_LATE,
        **more: Any,
    ) -> StepResult:
        """One step at depth 1; the driver's requests move on."""
        plan = self.plan(*rows, drafts=drafts, **more)
        result = self.runner.finish(self.runner.submit(plan), late)
        self.absorb(plan, result)
        return result

    def absorb(self, plan: StepPlan, result: StepResult) -> None:
        for row, slot in enumerate(plan.slots.tolist()):
            own = self.requests.get(slot)
            if own is not None:
                own.tokens += tokens_of(result, row)
                own.computed += int(result.accepted[row])

    def generate(self, slot: int, count: int) -> list[int]:
        """`count` tokens by plain decode steps."""
        start = len(self.requests[slot].tokens)
        while len(self.requests[slot].tokens) < start + count:
            self.run((slot, len(self.requests[slot].tokens) - self.requests[slot].computed))
        return self.requests[slot].tokens[start:]


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
            "dtype": "auto",
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

    def make(files: ModelFiles, page_tokens: int = 4, **changes: Any) -> Driver:
        runner = TorchRunner()
        info = runner.load(context(files, **changes))
        driver = Driver(runner, page_tokens=page_tokens)
        driver.bind(info)
        return driver

    return make
