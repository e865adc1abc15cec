"""A whole engine core on the scripted runner, for tests of what runs inside it.

    one = Harness(policy=Mine(), runner={"num_pages": 20}, max_num_batched_tokens=8)
    one.add("a", [1, 2, 3], max_tokens=5)
    assert one.run()["a"].tokens == expected_tokens([1, 2, 3], 5)

Every step is checked: counts, pages, the budget, and by the runner what lies in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from framework.contracts.kv_cache_spec import CacheManagerType
from framework.contracts.messages import EngineInput, EngineOutputs
from framework.contracts.participant import SchedulerParticipant
from framework.contracts.sampling import SamplingParams
from framework.contracts.scheduling_policy import SchedulingPolicy
from framework.core.config import CoreConfig
from framework.core.engine_core import EngineCore
from framework.core.policies import FirstComeFirstServed
from framework.testing.scripted import ScriptedRunner

# What goes into the request itself; everything else that `Harness.add` takes is for sampling.
_OF_THE_REQUEST = frozenset(
    (
        "stop_ids",
        "priority",
        "salt",
        "extras",
        "deadline",
        "tenant",
        "adapter",
        "pooling",
        "encoder_tokens",
    )
)


@dataclass
class Answer:
    """All that was heard of one request.

    reason: why it ended, or None.  stop: the token id that ended it.  error: with the reason
    "error".  timed_out, refused: as in Finished.  cached: prompt tokens from the prefix cache.
    logprobs, prompt_logprobs: in hundredths, as the scripted runner gives them.
    pooled: the vector.
    """

    tokens: list[int] = field(default_factory=list)
    reason: str | None = None
    stop: int | None = None
    error: str | None = None
    timed_out: bool = False
    refused: bool = False
    cached: int = 0
    logprobs: list[int] = field(default_factory=list)
    prompt_logprobs: dict[int, int] = field(default_factory=dict)
    pooled: list[float] | None = None


class Harness:
    """Runs requests and checks integrity after every step.

    policy: in order of arrival if None.  participants: name -> instance.  runner: arguments of
    `ScriptedRunner`.  managers: cache manager types, all of them; None: the built-in ones.
    clock: seconds, rising; None: the real one.  config: fields of `CoreConfig`.

    Raises IntegrityError and EngineDeadError as the core does, AssertionError for whatever else
    is not as it must be.
    """

    def __init__(
        self,
        *,
        policy: SchedulingPolicy | None = None,
        participants: Mapping[str, SchedulerParticipant] | None = None,
        runner: Mapping[str, Any] | None = None,
        managers: Sequence[CacheManagerType] | None = None,
        clock: Callable[[], float] | None = None,
        **config: Any,
    ) -> None:
        self.runner = ScriptedRunner(**{"keep_steps": True, **(runner or {})})
        self.config = CoreConfig(**config)
        self.core = EngineCore(
            self.runner,
            self.runner.info(),
            self.config,
            policy=policy or FirstComeFirstServed(),
            participants=participants,
            managers=managers,
            **({"clock": clock} if clock else {}),
        )
        self.answers: dict[str, Answer] = {}

    def add(self, name: str, prompt: Sequence[int], max_tokens: int = 8, **more: Any) -> None:
        """Queue a request.  more: fields of `EngineInput` or of `SamplingParams`."""
        own = {key: more.pop(key) for key in _OF_THE_REQUEST & more.keys()}
        room = max_tokens if own.get("pooling") is None else 0
        self.core.add(
            EngineInput(
                request_id=name,
                tokens=np.array(prompt, np.int32),
                sampling=SamplingParams(max_tokens=max_tokens, temperature=0, **more),
                seed=0,
                max_total=len(prompt) + room,
                **own,
            )
        )
        self.answers[name] = Answer()

    def step(self) -> EngineOutputs:
        """One step of the core, checked."""
        outputs = self.core.step()
        self.core.check_integrity()
        if self.runner.plans:
            rows, most = self.runner.plans[-1].num_rows, self.config.active_limit
            _must(rows <= most, f"a step of {rows} requests, where {most} may be active")
            spent, budget = self.runner.plans[-1].num_tokens, self.config.max_num_batched_tokens
            _must(spent <= budget, f"a step of {spent} tokens, with a budget of {budget}")
        self.absorb(outputs)
        return outputs

    def absorb(self, outputs: EngineOutputs) -> None:
        """Take in what a step brought."""
        offsets = outputs.token_offsets
        _must(
            bool((np.diff(offsets) >= 0).all()) and offsets[-1] == len(outputs.token_ids),
            f"token_offsets {offsets.tolist()} over {len(outputs.token_ids)} tokens",
        )
        for row, name in enumerate(outputs.request_ids):
            answer = self.answers[name]
            _must(answer.reason is None, f"heard of {name!r} after its end")
            first, last = offsets[row], offsets[row + 1]
            answer.tokens += outputs.token_ids[first:last].tolist()
            answer.cached = int(outputs.cached[row])
            if outputs.logprobs is not None:
                for index, token in enumerate(outputs.logprob_tokens.tolist()):
                    if first <= token < last:
                        value = outputs.logprobs.values[outputs.logprobs.offsets[index]]
                        answer.logprobs.append(round(float(value) * 100))
        for part in outputs.prompt_logprobs:
            _must(len(part.logprobs) > 0, "a part of no prompt log-probabilities")
            answer = self.answers[outputs.request_ids[part.row]]
            for index, value in enumerate(part.logprobs.values.tolist()):
                place = part.start + index
                _must(place not in answer.prompt_logprobs, f"position {place} reported twice")
                answer.prompt_logprobs[place] = round(value * 100)
        for vector in outputs.pooled:
            self.answers[outputs.request_ids[vector.row]].pooled = vector.vector.tolist()
        for end in outputs.finished:
            answer = self.answers[outputs.request_ids[end.row]]
            answer.reason, answer.stop, answer.error = end.reason, end.stop, end.error
            answer.timed_out, answer.refused = end.timed_out, end.refused

    def run(self, most: int = 5000) -> dict[str, Answer]:
        """Step until nothing is left, and no pages are held; then everything must be as at the
        start."""
        for _ in range(most):
            if not self.core.has_work() and not self.core.stats.pages_used:
                break
            self.step()
        left = [name for name, answer in self.answers.items() if answer.reason is None]
        _must(not self.core.has_work(), f"not ended after {most} steps: {left[:8]}")
        self.check_empty()
        return self.answers

    def check_empty(self) -> None:
        """Nothing runs, nothing waits, and all pages are free."""
        stats = self.core.stats
        _must(not stats.running, f"{stats.running} requests still run")
        _must(not stats.waiting, f"{stats.waiting} requests still wait")
        _must(not stats.pages_used, f"{stats.pages_used} pages were not given back")


def _must(condition: bool, sentence: str) -> None:
    """An assert that also holds where asserts are switched off."""
    if not condition:
        raise AssertionError(sentence)
