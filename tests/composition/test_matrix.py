"""Each feature alone, each pair of them, and sets of three by seed; see `features`."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tests.composition.features import FEATURES, REFUSALS, Feature, fits, sets_of
from tests.composition.matrix import Matrix
from tools import composition_page

TRIPLES = 150
LONG = frozenset(
    (
        "a core of its own process",
        "a sliding window",
        "hybrid attention",
        "a Transformers model",
    )
)
"""What takes a process or a model of its own."""


def name_of(features: Sequence[Feature]) -> str:
    return " + ".join(one.name for one in features)


def by_engine(sets: Sequence[Sequence[Feature]]) -> list[Sequence[Feature]]:
    """Those that share an engine one after another."""
    return sorted(sets, key=lambda some: (repr(sorted(options_of(some).items())), name_of(some)))


def options_of(features: Sequence[Feature]) -> dict[str, object]:
    return {name: value for one in features for name, value in one.wanted.items()}


def sample() -> set[str]:
    """Names of the pairs that `make test` tries: they hold each feature but the long ones."""
    pairs = random.Random(12).sample(sets_of(2), len(sets_of(2)))
    left = {one.name for one in FEATURES} - LONG
    found = set()
    for least in (2, 1):
        for some in pairs:
            names = {one.name for one in some}
            if len(names & left) >= least and not names & LONG:
                found.add(name_of(some))
                left -= names
    return found


def pairs() -> list[object]:
    quick = sample()
    return [
        pytest.param(
            some, id=name_of(some), marks=[] if name_of(some) in quick else [pytest.mark.long]
        )
        for some in by_engine(sets_of(2))
    ]


def triples() -> list[Sequence[Feature]]:
    rng = random.Random(12)
    return by_engine(rng.sample(sets_of(3), TRIPLES))


@pytest.mark.long
@pytest.mark.parametrize("feature", FEATURES, ids=lambda one: one.name)
def test_alone(matrix: Matrix, feature: Feature) -> None:
    matrix.verify([feature])


@pytest.mark.parametrize("features", pairs())
def test_pair(matrix: Matrix, features: Sequence[Feature]) -> None:
    matrix.verify(features)


@pytest.mark.long
@pytest.mark.parametrize("features", triples(), ids=name_of)
def test_triple(matrix: Matrix, features: Sequence[Feature]) -> None:
    matrix.verify(features)


def test_each_refusal_is_of_features_that_there_are() -> None:
    names = [one.name for one in FEATURES]
    assert len(set(names)) == len(names)
    for refusal in REFUSALS:
        assert all(fits(pattern, names) for pattern in refusal.names), refusal


def test_the_page_says_what_is_tried() -> None:
    assert not composition_page.stale(), composition_page.MEND
