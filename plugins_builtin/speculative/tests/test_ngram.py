"""Prompt lookup: the longest ending that occurred before, its last occurrence first."""

import numpy as np
import pytest

from framework.errors import PluginError
from framework.plugins.registry import PluginRegistry
from framework_speculative.ngram import look_up


def drafts(tokens, wanted=3, longest=3, shortest=1):
    return look_up(np.array(tokens, np.int32), wanted, longest, shortest).tolist()


@pytest.mark.parametrize(
    ("tokens", "found"),
    [
        ([1, 2, 3, 4, 5, 1, 2], [3, 4, 5]),
        ([7, 1, 2, 3, 9, 1, 2, 4, 9, 1, 2], [4, 9, 1]),  # the last occurrence
        ([5, 1, 2, 8, 8, 9, 1, 2, 7, 7, 5, 1, 2], [8, 8, 9]),  # the longer ending
        ([1, 2, 3], []),
        ([1], []),
        ([], []),
        ([4, 4], [4, 4, 4]),  # tokens that repeat go on
        ([9, 1, 2, 1, 2], [1, 2, 1]),
        ([3, 1, 2, 3], [1, 2, 3]),
    ],
)
def test_what_followed_the_longest_ending_the_last_time_comes(tokens, found):
    assert drafts(tokens) == found


def test_endings_shorter_than_the_least_do_not_count():
    tokens = [1, 2, 3, 9, 9, 8, 3]
    assert drafts(tokens, shortest=1) == [9, 9, 8]
    assert drafts(tokens, shortest=2) == []
    assert drafts([1, 2, 3, 9, 9, 2, 3], shortest=2) == [9, 9, 2]


def test_no_more_is_proposed_than_is_wanted():
    assert drafts([1, 2, 3, 4, 1], wanted=1) == [2]
    assert drafts([1, 2, 3, 4, 1], wanted=0) == []


def test_it_finds_what_a_plain_search_finds():
    """All endings and places, tried one after another from the end."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        tokens = rng.integers(0, rng.integers(2, 6), rng.integers(0, 25)).tolist()
        longest = int(rng.integers(1, 5))
        shortest = int(rng.integers(1, longest + 1))
        wanted = int(rng.integers(1, 6))
        assert drafts(tokens, wanted, longest, shortest) == plain(
            tokens, wanted, longest, shortest
        ), (tokens, wanted, longest, shortest)


def plain(tokens, wanted, longest, shortest):
    for length in range(longest, shortest - 1, -1):
        ending = tokens[len(tokens) - length :]
        for start in range(len(tokens) - length - 1, -1, -1):
            if length <= len(tokens) and tokens[start : start + length] == ending:
                known = list(tokens)
                for place in range(start + length, start + length + wanted):
                    known.append(known[place])
                return known[len(tokens) :]
    return []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"prompt_lookup_mx": 3}, "prompt_lookup_max"),
        ({"prompt_lookup_max": 0}, "prompt_lookup_max"),
        ({"prompt_lookup_max": 2, "prompt_lookup_min": 3}, "prompt_lookup_min"),
    ],
)
def test_bad_options_are_named(options, words):
    registry = PluginRegistry(options={"speculative_proposer": {"ngram": options}})
    with pytest.raises(PluginError, match=words):
        registry.create("speculative_proposer", "ngram")
