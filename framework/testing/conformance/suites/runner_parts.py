"""What the suites of model runners and executors are made of: a tiny model, and a driver."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from framework.contracts.model_runner import ModelRunner, RunnerContext
from framework.contracts.model_source import ModelFiles
from framework.contracts.sampling import SamplingParams
from framework.contracts.step import RunnerInfo, StepPlan, StepResult
from framework.testing.conformance.cases import Case, expect, expect_close
from framework.testing.conformance.suite import Suite
from framework.testing.driver import Driver

TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
"""A model that a runner without weights of its own can make up (`load_format="dummy"`)."""

OF_FEATURES = ("logprobs", "prompt_logprobs", "drafts", "structured_outputs", "prompt_embeds")


class RunnerSuite(Suite):
    """What the clauses have in common.  page_tokens: of the cache that the driver binds.
    tensor_api: whose defaults must stay, where there is a bridge to it."""

    capabilities = (*OF_FEATURES, "two_in_flight", "health", "sleep")
    ordinary = ("tokens_go_to_who_wants_them",)
    may_set = ("threads of",)
    page_tokens: ClassVar[int] = 4
    dtype: ClassVar[str] = "float32"
    tensor_api: ClassVar[str] = "torch"

    info: RunnerInfo  # of the last driver
    _second: Driver | None = None
    _turn = 0

    def context(self) -> RunnerContext:
        """What the runner loads, by default a tiny decoder with made-up weights.  Override it for
        a runner of other models; 40 tokens of at least 20 ids must fit."""
        return RunnerContext(
            model=ModelFiles(
                name="conformance",
                root=Path(tempfile.gettempdir()),
                weights=(),
                format="none",
                config=dict(TINY),
            ),
            registry=self.target.registry,
            dtype=self.dtype,
            max_slots=8,
            max_step_tokens=256,
            max_model_len=None,
            page_tokens=self.page_tokens,
            load_format="dummy",
            choices=self.choices(),
        )

    def choices(self) -> dict[str, str]:
        """kind -> name of what the runner shall use; by default it chooses itself."""
        return {}

    def declared(self) -> frozenset[str]:
        info = self.load()[1]
        found = {name for name in OF_FEATURES if name in info.features}
        found |= {"two_in_flight"} if info.max_loop_depth >= 2 else set()
        found |= {"health"} & info.control_ops
        found |= {"sleep"} if {"sleep", "wake"} & info.control_ops else set()
        return frozenset(found)

    def load(self) -> tuple[ModelRunner, RunnerInfo]:
        """A loaded runner, not yet bound."""
        runner: ModelRunner = self.new()
        return runner, runner.load(self.context())

    def driver(self) -> Driver:
        """A driver of a bound runner."""
        runner, info = self.load()
        made = Driver(runner, page_tokens=self.page_tokens)
        made.bind(info)
        self.info = info
        return made

    def sampling(self, **more: Any) -> SamplingParams:
        """Greedy, with the log-probabilities of the whole vocabulary where there are some."""
        options: dict[str, Any] = {"temperature": 0.0, "max_tokens": 64}
        if "logprobs" in self.info.features:
            options["logprobs"] = -1
        return SamplingParams(**{**options, **more})

    def prompt(self, case: Case, length: int | None = None) -> list[int]:
        """Ids that any of the models has."""
        count = length or int(case.rng.integers(5, 20))
        return [int(token) for token in case.rng.integers(0, 20, count)]

    def alone(
        self, prompt: Sequence[int], count: int, sampling: SamplingParams | None = None, **more: Any
    ) -> tuple[list[int], list[np.ndarray]]:
        """(tokens, log-probabilities of each) of a request alone in a second runner, by plain
        steps: what it must get in any company."""
        if self._second is None:
            self._second = self.driver()
        driver, self._turn = self._second, self._turn + 1
        driver.admit(0, prompt, sampling or self.sampling(), generation=self._turn, **more)
        own, scores = driver.requests[0], []
        while len(own.tokens) < len(prompt) + count:
            result = driver.run((0, len(own.tokens) - own.computed))
            self.no_errors(result)
            scores += self.scores(result, 0)
        driver.release(0)
        return own.tokens[len(prompt) :], scores

    @staticmethod
    def no_errors(result: StepResult) -> None:
        expect(not result.errors, "rows end with errors", found=dict(result.errors))

    @staticmethod
    def tokens(result: StepResult, row: int) -> list[int]:
        """Of one row."""
        low, high = result.token_offsets[row : row + 2]
        return [int(token) for token in result.token_ids[low:high]]

    @staticmethod
    def scores(result: StepResult, row: int) -> list[np.ndarray]:
        """Log-probabilities of one row's tokens by id, one array each; none if not reported."""
        found: list[np.ndarray] = []
        if result.logprobs is None:
            return found
        low, high = result.token_offsets[row : row + 2]
        for index, token in enumerate(result.logprob_tokens.tolist()):
            if low <= token < high:
                first, last = result.logprobs.offsets[index : index + 2]
                order = np.argsort(result.logprobs.ids[first:last], kind="stable")
                found.append(result.logprobs.values[first:last][order])
        return found

    def same(
        self,
        found: tuple[Sequence[int], Sequence[np.ndarray]],
        true: tuple[Sequence[int], Sequence[np.ndarray]],
        what: str,
    ) -> None:
        """Raise Violation unless tokens are equal, and log-probabilities nearly so."""
        expect(
            list(found[0]) == list(true[0]),
            f"{what}: other tokens than alone",
            expected=list(true[0]),
            found=list(found[0]),
        )
        for mine, reference in zip(found[1], true[1], strict=False):
            expect_close(mine, reference.astype(np.float64), self.dtype, f"{what}: scores")


def read_only(plan: StepPlan) -> StepPlan:
    """The plan, with arrays that nobody can write to."""
    arrays = [getattr(plan, name) for name in plan.__slots__]
    for update in plan.pages:
        arrays += [getattr(update, name) for name in update.__slots__]
    arrays += [request.tokens for request in plan.admitted]
    for array in arrays:
        if isinstance(array, np.ndarray):
            array.flags.writeable = False
    return plan


def values(plan: StepPlan) -> dict[str, object]:
    """The arrays of a plan as values."""
    own = {name: getattr(plan, name) for name in plan.__slots__}
    return {name: array.tolist() for name, array in own.items() if isinstance(array, np.ndarray)}
