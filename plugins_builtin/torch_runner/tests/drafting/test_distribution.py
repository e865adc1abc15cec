"""Drafts do not move the distribution: 50,000 outputs against the exact one, and against outputs
without drafts, by a chi-square test; and the outputs themselves are the very same ones.

Verification here draws the target's token at each place with noise that depends on seed and
position alone, and compares.  So whatever a draft depends on, the token does not depend on it.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from framework.contracts.sampling import SamplingParams
from framework.contracts.step import NOTHING_LATE, AdmittedRequest
from framework_torch.batch import TokenTable, ragged_range
from framework_torch.prepare import Points, StepInputs
from framework_torch.sampler import Sampler
from framework_torch.sampling import sample

VOCAB, LENGTH, DRAFTS = 4, 3, 3
SLOTS, ROUNDS = 2000, 25  # 50,000 outputs
PLACES = 8  # of the table for each round
STARTS = np.full(SLOTS, 1)
TARGET = np.array(
    [[2.0, 1.0, 0.0, -1.0], [0.0, 0.0, 0.5, 0.2], [-1.0, 3.0, 0.0, 0.0], [0.3, -2.0, 0.1, 1.0]],
    np.float32,
)
"""Logits of the next token by the one before: rows differ, so that a wrong prefix shows."""
WAYS = {
    "plain": SamplingParams(temperature=1.5),
    "filtered": SamplingParams(temperature=0.7, top_k=3, min_p=0.05, top_p=0.97),
}


def probabilities(ask):
    """Of the next token by the one before, float64 [V, V]: temperature, min_p, top-k, top-p."""
    p = np.exp(TARGET.astype(np.float64) / ask.temperature)
    p /= p.sum(1, keepdims=True)
    p[p < p.max(1, keepdims=True) * ask.min_p] = 0
    for row in p:
        order = np.argsort(-row, kind="stable")
        if ask.top_k:
            row[order[ask.top_k :]] = 0
        row /= row.sum()
        before = np.cumsum(row[order]) - row[order]
        row[order[before >= ask.top_p]] = 0
        row /= row.sum()
    return p


def good(last, rng, right):
    """From a model that is nearly the target."""
    return walk(last, rng, TARGET + rng.normal(size=TARGET.shape) * 0.2)


def bad(last, rng, right):
    """From one that prefers what the target does not."""
    return walk(last, rng, -2 * TARGET)


def constant(last, rng, right):
    return np.zeros((len(last), DRAFTS), np.int64)


def adversarial(last, rng, right):
    """Knows the noise: it is right exactly where token 0 will come, and never else.  Where tokens
    depended on being proposed, 0 would come more often, or less."""
    wrong = (right + 1) % VOCAB
    return np.where(right == 0, right, wrong)


def walk(last, rng, logits):
    p = np.exp(logits)
    p /= p.sum(1, keepdims=True)
    drafts = []
    for _ in range(DRAFTS):
        last = (rng.random(len(last))[:, None] > np.cumsum(p[last], 1)).sum(1).clip(0, VOCAB - 1)
        drafts.append(last)
    return np.stack(drafts, 1)


class Course:
    """Requests in all slots, whose next tokens come from TARGET."""

    def __init__(self, ask, seed):
        self.sampler = Sampler(VOCAB, SLOTS)
        self.table = TokenTable(SLOTS, PLACES * ROUNDS)
        self.seeds = np.arange(SLOTS) + seed
        for slot in range(SLOTS):
            self.sampler.admit(
                AdmittedRequest(
                    slot=slot,
                    generation=1,
                    request_id=str(slot),
                    tokens=np.zeros(1, np.int32),
                    num_prompt=1,
                    sampling=ask,
                    seed=int(self.seeds[slot]),
                )
            )

    def outputs(self, drafter=None, rng=None, right=None):
        """LENGTH tokens of each slot in each round: int64 [ROUNDS, SLOTS, LENGTH].  Rounds lie at
        other positions, and so have other noise."""
        made, self.accepted = [], 0
        for number in range(ROUNDS):
            base = number * PLACES
            self.table.tokens[:, base] = 0
            lengths = STARTS + base
            while (short := np.flatnonzero(lengths - base - 1 < LENGTH)).size:
                lengths[short] += self.step(short, lengths[short], base, drafter, rng, right)
            made.append(self.table.tokens[:, base + 1 : base + 1 + LENGTH].astype(np.int64))
        return np.stack(made)

    def step(self, slots, lengths, base, drafter, rng, right):
        last = self.table.tokens[slots, lengths - 1].astype(np.int64)
        drafts = np.zeros((len(slots), 0), np.int64)
        if drafter is not None:
            coming = None
            if right is not None:
                at = lengths[:, None] - base - 1 + np.arange(DRAFTS)
                coming = right[base // PLACES][slots[:, None], np.minimum(at, LENGTH - 1)]
            drafts = drafter(last, rng, coming)
        count = drafts.shape[1] + 1
        counts = np.full(len(slots), count)
        steps = ragged_range(counts)
        rows = np.repeat(np.arange(len(slots)), counts)
        points = Points(
            rows=rows,
            steps=steps,
            at=np.arange(len(rows)),
            slots=slots[rows].astype(np.int32),
            positions=lengths[rows] + steps,
        )
        before = np.concatenate((last[:, None], drafts), axis=1).reshape(-1)
        inputs = StepInputs(
            rows=np.arange(len(slots)),
            slots=slots.astype(np.int32),
            num_new=counts.astype(np.int32),
            computed=(lengths - 1).astype(np.int32),
            lengths=(lengths - 1 + count).astype(np.int32),
            drafts=(counts - 1).astype(np.int32),
            draft_ids=drafts.reshape(-1).astype(np.int32),
            query_starts=np.concatenate(([0], np.cumsum(counts))).astype(np.int32),
            token_rows=rows,
            tokens=before,
            positions=lengths[rows] - 1 + steps,
        )
        logits = torch.from_numpy(TARGET[before])
        batch = SimpleNamespace(table=self.table)
        sampled = sample(points, inputs, NOTHING_LATE, batch, self.sampler, logits)
        assert not sampled.errors
        got = np.bincount(sampled.rows, minlength=len(slots))
        self.accepted += int(got.sum()) - len(slots)
        return got


def cells(outputs):
    """How often each of the VOCAB ** LENGTH outputs came."""
    flat = outputs.reshape(-1, LENGTH) @ VOCAB ** np.arange(LENGTH)
    return np.bincount(flat, minlength=VOCAB**LENGTH)


def expected_cells(ask):
    p = probabilities(ask)
    ids = np.stack([np.arange(VOCAB**LENGTH) // VOCAB**place % VOCAB for place in range(LENGTH)], 1)
    mass = p[0, ids[:, 0]]
    for place in range(1, LENGTH):
        mass = mass * p[ids[:, place - 1], ids[:, place]]
    return mass * SLOTS * ROUNDS


def deviations(statistic, freedom):
    """Standard deviations above what is usual: the cube root is nearly normal (Wilson and
    Hilferty 1931)."""
    spread = 2 / (9 * freedom)
    return ((statistic / freedom) ** (1 / 3) - (1 - spread)) / spread**0.5


@pytest.fixture(scope="module")
def without():
    """(ask, seed) -> outputs without drafts, made once."""
    made = {}

    def make(way, seed):
        if (way, seed) not in made:
            made[way, seed] = Course(WAYS[way], seed).outputs()
        return made[way, seed]

    return make


@pytest.mark.parametrize(
    ("way", "drafter"),
    [
        ("plain", good),
        ("plain", bad),
        ("plain", constant),
        ("plain", adversarial),
        ("filtered", good),
        ("filtered", adversarial),
    ],
)
def test_the_distribution_is_that_of_the_target(without, way, drafter):
    right = without(way, 0)
    course = Course(WAYS[way], 0)
    outputs = course.outputs(drafter, np.random.default_rng(1), right)
    assert course.accepted > 1000, "drafts that are never accepted show nothing"
    assert np.array_equal(outputs, right), "each output is the one without drafts"

    found, expected = cells(outputs), expected_cells(WAYS[way])
    assert found[expected == 0].sum() == 0
    some = expected > 0
    assert expected[some].min() > 5, "cells are large enough for the test"
    exact = ((found - expected)[some] ** 2 / expected[some]).sum()
    assert deviations(exact, some.sum() - 1) < 4

    direct = cells(without(way, 10**6))  # other seeds
    both = (found + direct)[some]
    against = ((found - direct)[some] ** 2 / both).sum()
    assert deviations(against, some.sum() - 1) < 4


def test_the_test_would_see_tokens_that_depend_on_drafts(without):
    """Where a refused draft could come again after all, as when the rest is not sampled anew
    without it, or a wrong draft were let pass once in fifty times."""
    outputs = without("plain", 0).copy().reshape(-1, LENGTH)
    outputs[::50, 1] = (outputs[::50, 1] + 1) % VOCAB
    found, expected = cells(outputs), expected_cells(WAYS["plain"])
    statistic = ((found - expected) ** 2 / expected).sum()
    assert deviations(statistic, len(expected) - 1) > 6
