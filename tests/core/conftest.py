"""A harness around the engine core with the scripted runner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from framework.contracts.messages import EngineInput, EngineOutputs
from framework.contracts.participant import SchedulerParticipant
from framework.contracts.sampling import SamplingParams
from framework.contracts.scheduling_policy import SchedulingPolicy
from framework.core.config import CoreConfig
from framework.core.engine_core import EngineCore
from framework.core.policies import FirstComeFirstServed
from framework.testing import ScriptedRunner


@dataclass
class Answer:
    """All that was heard of one request."""

    tokens: list[int] = field(default_factory=list)
    reason: str | None = None
    stop: int | None = None
    error: str | None = None
    cached: int = 0
    logprobs: list[float] = field(default_factory=list)
    prompt_logprobs: dict[int, float] = field(default_factory=dict)


class Harness:
    """Runs requests and checks integrity after every step."""

    def __init__(
        self,
        *,
        policy: SchedulingPolicy | None = None,
        participants: Mapping[str, SchedulerParticipant] | None = None,
        runner: Mapping[str, Any] | None = None,
        **config: Any,
    ) -> None:
        clock, managers = config.pop("clock", None), config.pop("managers", None)
        self.runner = ScriptedRunner(**(runner or {}))
        self.core = EngineCore(
            self.runner,
            self.runner.info(),
            CoreConfig(**config),
            policy=policy or FirstComeFirstServed(),
            participants=participants,
            managers=managers,
            **({"clock": clock} if clock else {}),
        )
        self.answers: dict[str, Answer] = {}
        self.budget = self.core._state.config.max_num_batched_tokens

    def add(self, name: str, prompt: Sequence[int], max_tokens: int = 8, **more: Any) -> None:
        entry_fields = {
            key: more.pop(key)
            for key in (
                "stop_ids",
                "priority",
                "salt",
                "extras",
                "deadline",
                "tenant",
                "adapter",
                "encoder_tokens",
            )
            if key in more
        }
        self.core.add(
            EngineInput(
                request_id=name,
                tokens=np.array(prompt, np.int32),
                sampling=SamplingParams(max_tokens=max_tokens, temperature=0, **more),
                seed=0,
                max_total=len(prompt) + max_tokens,
                **entry_fields,
            )
        )
        self.answers[name] = Answer()

    def step(self) -> EngineOutputs:
        outputs = self.core.step()
        self.core.check_integrity()
        if self.runner.plans:
            assert self.runner.plans[-1].num_tokens <= self.budget
        self.absorb(outputs)
        return outputs

    def absorb(self, outputs: EngineOutputs) -> None:
        for row, name in enumerate(outputs.request_ids):
            answer = self.answers[name]
            assert answer.reason is None, "heard of a request after its end"
            first, last = outputs.token_offsets[row], outputs.token_offsets[row + 1]
            answer.tokens += outputs.token_ids[first:last].tolist()
            answer.cached = int(outputs.cached[row])
            if outputs.logprobs is not None:
                for index, token in enumerate(outputs.logprob_tokens.tolist()):
                    if first <= token < last:
                        value = outputs.logprobs.values[outputs.logprobs.offsets[index]]
                        answer.logprobs.append(round(float(value) * 100))
        for part in outputs.prompt_logprobs:
            answer = self.answers[outputs.request_ids[part.row]]
            for index, value in enumerate(part.logprobs.values.tolist()):
                assert part.start + index not in answer.prompt_logprobs, "reported twice"
                answer.prompt_logprobs[part.start + index] = round(value * 100)
        for end in outputs.finished:
            answer = self.answers[outputs.request_ids[end.row]]
            answer.reason, answer.stop, answer.error = end.reason, end.stop, end.error

    def run(self, most: int = 5000) -> dict[str, Answer]:
        """Step until nothing is left; then everything must be as at the start."""
        for _ in range(most):
            if not self.core.has_work():
                break
            self.step()
        assert not self.core.has_work(), "requests never ended"
        stats = self.core.stats
        assert (stats.running, stats.waiting, stats.pages_used) == (0, 0, 0)
        return self.answers


@pytest.fixture(scope="session")
def engine() -> Callable[..., Harness]:
    """Makes a harness: engine(policy=..., participants=..., runner={...}, **CoreConfig)."""
    return Harness


@pytest.fixture
def alone(engine: Callable[..., Harness]) -> Callable[..., Answer]:
    """The answer to one request in an engine of its own, with room for everything."""

    def ask(prompt: Sequence[int], max_tokens: int = 8, **more: Any) -> Answer:
        one = engine(runner={"num_pages": 500})
        one.add("alone", prompt, max_tokens, **more)
        return one.run()["alone"]

    return ask
