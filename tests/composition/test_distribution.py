"""Requests without a seed: their tokens have the distribution that parameters and logits define.

By the probability integral transform: where a token takes the share [low, high) of the
distribution at its place, a number drawn evenly from that share is even in [0, 1).
"""

from __future__ import annotations

import numpy as np
import pytest

from framework import LLM, SamplingParams
from tests.composition.acts import Run
from tests.composition.features import FEATURES as ALL
from tests.composition.features import Feature, fits, merged, named, refusal_of, together
from tests.composition.matrix import PROMPTS, USUAL, Matrix
from tests.composition.models import USUAL as ENGINE
from tests.composition.models import Engines

OUTPUTS, TOKENS, BINS = 150, 4, 10
LEAST = 33.7
"""Of chi square with 9 degrees of freedom: even numbers reach it once in 10,000 times.  Seeds come
from the engine's, so that each run of a test draws the same ones."""
FREE = named("without a seed")
QUICK = ("drafts: draft model",)


def beside() -> list[Feature]:
    """Features whose requests draw at random, in an engine of this process."""
    return [
        one
        for one in ALL
        if together([FREE, one])
        and one is not FREE
        and not refusal_of([FREE, one])
        and not fits("greedy", [one.name])
        and not {"n", "max_tokens", "ignore_eos"} & set(one.asks)
        and not one.acts
        and one.options.get("quantization") is None
    ]


def marked(feature: Feature) -> object:
    marks = [] if feature.name in QUICK else [pytest.mark.long]
    return pytest.param(feature, id=feature.name, marks=marks)


@pytest.mark.parametrize("feature", list(map(marked, beside())))
def test_tokens_are_drawn_from_the_distribution(
    engines: Engines, matrix: Matrix, feature: Feature
) -> None:
    options = feature.wanted
    least = feature.asks.get("min_tokens", 0)
    fields = merged([{**USUAL, "seed": None, "n": OUTPUTS, "max_tokens": max(TOKENS, least)}])
    params = SamplingParams(**{**(fields or {}), **feature.asks})
    filled = engines.models.filled({**ENGINE, **options})
    with LLM(**filled) as llm:  # of its own: seeds come from the number of a request
        adapter = feature.adapters[0] if feature.adapters else None
        [answer] = Run(llm).answers([PROMPTS[3]], [params], [adapter])
    expected = matrix.expected(options.get("model", "{llama}")[1:-1], adapter)
    shares = expected.shares(PROMPTS[3], params, options, answer)
    assert len(shares) >= OUTPUTS
    low, high = np.array(shares).T
    even = low + np.random.default_rng(5).random(len(low)) * (high - low)
    counts = np.bincount(np.minimum((even * BINS).astype(int), BINS - 1), minlength=BINS)
    mean = len(even) / BINS
    assert ((counts - mean) ** 2 / mean).sum() < LEAST, counts
