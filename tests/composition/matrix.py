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

NO_ADAPTERS = (None,) * len(PROMPTS)
Adapters = Sequence[str | None]
Asked = tuple[Sequence[Sequence[int]], Sequence[SamplingParams], Adapters]


class Matrix:
    """Runs sets of features; answers that are compared with are kept."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._kept: dict[str, list[Answer]] = {}
        self._expected: dict[str, Expected] = {}

    def verify(self, features: Sequence[Feature]) -> None:
        """Asserts that this set is refused as it should be, or that it gives what it should: what
        comes without those that change nothing, to the bit, and that by the definition of what was
        asked.  Of requests with adapters: what comes when each is alone."""
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
        options = _least(features)
        notes = "; ".join(self._engines.get(options)._engine.notes)
        adapted = "adapters: " not in notes or "computed by cpu_packed" in notes
        return "attention: cpu_paged, pages" in notes and "logits cpu_packed" in notes and adapted

    def run(self, features: Sequence[Feature], what: Asked) -> list[Answer]:
        """The answers in an engine with all options, while all acts go on."""
        acts = [act for one in features for act in one.acts]
        return self._run(merged(one.wanted for one in features) or {}, acts, what)

    def _run(self, options: dict[str, Any], acts: Sequence[str], what: Asked) -> list[Answer]:
        if "process" in acts:
            remote: RemoteEngine = self._engines.get(options, RemoteEngine)
            return remote.answers(*what, acts)
        return Run(self._engines.get(options), acts).answers(*what)

    def _without(self, features: Sequence[Feature], answers: Sequence[Answer]) -> list[Answer]:
        """Answers to the same requests where all is left out that should change nothing."""
        options = _least(features)
        prompts, params, adapters = asked(features)
        params = tuple(
            one.replace(seed=_signed(answer.seeds[0]), output_kind="final_only", stream_interval=1)
            for one, answer in zip(params, answers, strict=True)
        )
        what = prompts, params, adapters
        key = f"{sorted(options.items())} {params} {adapters}"
        if key not in self._kept:
            self._kept[key] = [
                answer for group in _groups(what) for answer in self._run(options, (), group)
            ]
            if "quantization" not in options:  # Transformers has no such weights
                self._check(options, what, self._kept[key])
        return self._kept[key]

    def _check(self, options: dict[str, Any], what: Asked, answers: Sequence[Answer]) -> None:
        for prompt, one, adapter, answer in zip(*what, answers, strict=True):
            right = self.expected(options.get("model", "{llama}")[1:-1], adapter)
            right.check(prompt, one, options, answer)

    def expected(self, name: str, adapter: str | None = None) -> Expected:
        """Right answers of a model, with an adapter."""
        key = f"{name} {adapter}"
        if key not in self._expected:
            from framework_llguidance import LLGuidance
            from framework_outlines_core import OutlinesCore

            self._expected[key] = Expected(
                self._engines.models.merged(name, adapter),
                self._engines.get({"model": f"{{{name}}}"}).get_tokenizer(),
                {"llguidance": LLGuidance(), "outlines_core": OutlinesCore()},
            )
        return self._expected[key]


def asked(features: Sequence[Feature]) -> Asked:
    """Prompts, and what is asked of each."""
    adapters: Adapters = next((one.adapters for one in features if one.adapters), NO_ADAPTERS)
    if not any(one.asks for one in features):
        return PROMPTS, tuple(SamplingParams(**{**USUAL, **one}) for one in PANEL), adapters
    fields = merged(one.asks for one in features) or {}
    return PROMPTS, (SamplingParams(**{**USUAL, **fields}),) * len(PROMPTS), adapters


def _groups(what: Asked) -> Sequence[Asked]:
    """What is computed together where it is to be plain: all, but with adapters each alone."""
    if not any(what[2]):
        return [what]
    return [((prompt,), (one,), (adapter,)) for prompt, one, adapter in zip(*what, strict=True)]


def _least(features: Sequence[Feature]) -> dict[str, Any]:
    """Options without those that should change nothing."""
    changing = [one.options for one in features if one.changes]
    return merged([*changing, *(one.needs for one in features)]) or {}


def _about(scores: list[Any]) -> list[Any]:
    """The same up to rounding."""
    return [
        None if some is None else [pytest.approx(at, abs=1e-4) for at in some] for some in scores
    ]


def _signed(seed: int) -> int:
    """As a client says it."""
    return int(np.uint64(seed % 2**64).astype(np.int64))
