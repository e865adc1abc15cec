"""Counter-based randomness: the published answers, the range, and independence."""

from __future__ import annotations

import numpy as np
import pytest

from framework.core.random import derive_seed, philox4x32, uniforms

# Random123's kat_vectors for philox4x32, 10 rounds: counter, key, answer.
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (0xFFFFFFFF,) * 4,
        (0xFFFFFFFF,) * 2,
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def test_philox_gives_the_published_answers_one_by_one_and_together():
    for counter, key, answer in KNOWN_ANSWERS:
        one = philox4x32(np.array([counter], np.uint64).T, np.array([key], np.uint64).T)
        assert tuple(one[:, 0].tolist()) == answer
    counters, keys, answers = (
        np.array(part, np.uint64).T for part in zip(*KNOWN_ANSWERS, strict=True)
    )
    assert (philox4x32(counters, keys) == answers).all()


def test_seeds_of_children_are_no_numbers_that_a_token_is_drawn_with():
    """A child's seed must not tell what its parent draws at the position of that index."""
    drawn = [int(u * 2**53) for u in uniforms([7] * 50, range(50))]
    assert not {derive_seed(7, index) >> 11 for index in range(50)} & set(drawn)


def test_uniforms_are_the_first_53_bits_of_the_block():
    expected = ((0x6627E8D5 << 32 | 0xE169C58D) >> 11) / 2**53
    assert uniforms([0], [0]).tolist() == [expected]


def test_each_number_depends_on_its_own_seed_and_position_only():
    seeds = np.array([7, 2**64 - 1, 7, 0, 12345], np.uint64)
    positions = np.array([3, 0, 2**40, 3, 99])
    together = uniforms(seeds, positions)
    alone = [uniforms(seeds[i : i + 1], positions[i : i + 1])[0] for i in range(5)]
    assert together.tolist() == alone
    assert len(set(alone)) == 5


def test_high_words_of_seed_and_position_and_the_stream_all_count():
    base = uniforms([1], [1])[0]
    assert uniforms([1 + 2**32], [1])[0] != base
    assert uniforms([1], [1 + 2**32])[0] != base
    assert uniforms([1], [1], stream=1)[0] != base
    with pytest.raises(ValueError, match="stream"):
        uniforms([1], [1], stream=2**32)


def test_uniforms_fill_the_unit_interval_evenly_over_positions_and_over_seeds():
    n = 20_000
    same_seed = uniforms(np.full(n, 42, np.uint64), np.arange(n))
    same_position = uniforms(np.arange(n, dtype=np.uint64), np.full(n, 5))
    for numbers in (same_seed, same_position):
        assert numbers.min() >= 0.0
        assert numbers.max() < 1.0
        counts = np.histogram(numbers, 100, (0.0, 1.0))[0]
        # Chi-square with 99 degrees of freedom: 160 is beyond 1 - 1e-4.
        assert ((counts - n / 100) ** 2 / (n / 100)).sum() < 160
        assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.03


def test_no_rows_give_no_numbers():
    assert uniforms(np.zeros(0, np.uint64), np.zeros(0, np.int64)).shape == (0,)


def test_derived_seeds_are_distinct_reproducible_and_in_range():
    seeds = [derive_seed(parent, index) for parent in (0, 1, -1, 2**63) for index in range(200)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**64 for seed in seeds)
    assert derive_seed(9, 4) == derive_seed(9, 4)
    assert derive_seed(-1, 0) == derive_seed(2**64 - 1, 0)


def test_children_draw_other_numbers_than_their_parent():
    positions = np.arange(50)
    parent = uniforms(np.full(50, 3, np.uint64), positions)
    child = uniforms(np.full(50, derive_seed(3, 0), np.uint64), positions)
    assert not (parent == child).any()
