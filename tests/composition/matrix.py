"""What a set of features has to give, and whether it does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from framework import SamplingParams
from framework.errors import FrameworkError
from tests.composition.acts import Answer, Run
from tests.composition.features import Feature, merged, refusal_of
from tests.composition.models import Engines
from tests.composition.reference import Expected
from tests.composition.remote import RemoteEngine

PROMPTS = (
    [40, 65, 12],
    [(7 * k) % 250 for k in range(17)],
    [(11 * k + 3) % 90 for k in range(33)],
    [40, 65, 12, 40, 65, 12, 40, 65],
)
USUAL = {"max_tokens": 20, "seed": 7}
PANEL: tuple[dict[str, Any], ...] = (
    {"temperature": 0.0},
    {"temperature": 0.9, "top_p": 0.9, "presence_penalty": 0.8, "repetition_penalty": 1.2},
    {"n": 3, "logprobs": 2, "min_p": 0.01},
    {"temperature": 0.0, "prompt_logprobs": 1, "logprobs": 0, "min_tokens": 5},
)
"""What is asked where no feature is one of requests."""

Asked = tuple[Sequence[Sequence[int]], Sequence[SamplingParams]]


class Matrix:
    """Runs sets of features; answers that are compared with are kept."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._kept: dict[str, list[Answer]] = {}
        self._expected: dict[str, Expected] = {}

    def verify(self, features: Sequence[Feature]) -> None:
        """Asserts that this set is refused as it should be, or that it gives what it should: what
        comes without those that change nothing, to the bit, and that by the definition of what was
        asked."""
        refusal = refusal_of(features)
        if refusal is not None:
            with pytest.raises(FrameworkError, match=refusal.words):
                self.run(features, asked(features))
            return
        answers = self.run(features, asked(features))
        wanted = self._without(features, answers)
        exact = self._is_exact(features)
        for one, other in zip(answers, wanted, strict=True):
            assert one.told == other.told
            assert one.scores == (other.scores if exact else _about(other.scores))
            assert list(map(sum, one.pieces)) == list(map(len, one.token_ids))

    def _is_exact(self, features: Sequence[Feature]) -> bool:
        """Whether logits are the same bit for bit in any company; see docs/api.md."""
        options = merged(one.wanted for one in features if one.changes) or {}
        notes = "; ".join(self._engines.get(options)._engine.notes)
        return "attention: cpu_paged, pages" in notes and "logits cpu_packed" in notes

    def run(self, features: Sequence[Feature], what: Asked) -> list[Answer]:
        """The answers in an engine with all options, while all acts go on."""
        options = merged(one.wanted for one in features) or {}
        acts = [act for one in features for act in one.acts]
        if "process" in acts:
            remote: RemoteEngine = self._engines.get(options, RemoteEngine)
            return remote.answers(*what, acts)
        return Run(self._engines.get(options), acts).answers(*what)

    def _without(self, features: Sequence[Feature], answers: Sequence[Answer]) -> list[Answer]:
        """Answers to the same requests where all is left out that should change nothing."""
        plain = [one for one in features if one.changes]
        prompts, params = asked(features)
        params = tuple(
            one.replace(seed=_signed(answer.seeds[0]), output_kind="final_only", stream_interval=1)
            for one, answer in zip(params, answers, strict=True)
        )
        key = f"{sorted(one.name for one in plain)} {params}"
        if key not in self._kept:
            self._kept[key] = self.run(plain, (prompts, params))
            options = merged(one.wanted for one in plain) or {}
            if "quantization" not in options:  # Transformers has no such weights
                self._check(options, (prompts, params), self._kept[key])
        return self._kept[key]

    def _check(self, options: dict[str, Any], what: Asked, answers: Sequence[Answer]) -> None:
        right = self.expected(options.get("model", "{llama}")[1:-1])
        for prompt, one, answer in zip(*what, answers, strict=True):
            right.check(prompt, one, options, answer)

    def expected(self, name: str) -> Expected:
        """Right answers of a model."""
        if name not in self._expected:
            from framework_llguidance import LLGuidance
            from framework_outlines_core import OutlinesCore

            self._expected[name] = Expected(
                self._engines.models.tiny(name).model,
                self._engines.get({"model": f"{{{name}}}"}).get_tokenizer(),
                {"llguidance": LLGuidance(), "outlines_core": OutlinesCore()},
            )
        return self._expected[name]


def asked(features: Sequence[Feature]) -> Asked:
    """Prompts, and what is asked of each."""
    if not any(one.asks for one in features):
        return PROMPTS, tuple(SamplingParams(**{**USUAL, **one}) for one in PANEL)
    fields = merged(one.asks for one in features) or {}
    return PROMPTS, (SamplingParams(**{**USUAL, **fields}),) * len(PROMPTS)


def _about(scores: list[Any]) -> list[Any]:
    """The same up to rounding."""
    return [
        None if some is None else [pytest.approx(at, abs=1e-4) for at in some] for some in scores
    ]


def _signed(seed: int) -> int:
    """As a client says it."""
    return int(np.uint64(seed % 2**64).astype(np.int64))
