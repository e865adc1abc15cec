"""Suffixes: the most frequent follower of the longest ending, for as long as it is likely."""

from collections import Counter

import numpy as np
import pytest

from framework_speculative.suffix import SuffixOptions, go_on, longest


def drafts(tokens, wanted=4, **options):
    return list(go_on(np.array(tokens, np.int32), wanted, SuffixOptions(**options)))


@pytest.mark.parametrize(
    ("tokens", "found"),
    [
        ([1, 2, 3, 9, 1, 2, 4, 9, 1, 2, 3, 9, 1, 2], [4, 9, 1, 2]),  # after 3 9 1 2
        ([1, 2, 3, 9, 1, 2, 4, 9, 1, 2], [4, 9, 1, 2]),  # as often: the last one
        ([1, 2, 3], []),
        ([1], []),
        ([], []),
        ([4, 4], [4]),  # what followed is the end itself
    ],
)
def test_what_followed_most_often_comes(tokens, found):
    assert drafts(tokens) == found


def test_of_several_followers_the_most_frequent_comes():
    tokens = [1, 2, 3, 9, 1, 2, 4, 9, 1, 2, 3, 9, 1, 2]
    assert drafts(tokens, suffix_max=2) == [3, 9, 1, 2], "twice after 1 2, and 4 once"


def test_it_ends_where_it_is_no_longer_likely():
    tokens = [1, 5, 1, 6, 1, 7, 1, 8, 1]
    assert drafts(tokens, least_probability=0.3) == []
    assert drafts(tokens, least_probability=0.2, wanted=1) == [8]


def test_a_short_ending_gives_few_drafts():
    tokens = [7, 1, 2, 3, 4, 5, 8, 1]
    assert drafts(tokens, drafts_per_token=2.0) == [2, 3]
    assert drafts(tokens, drafts_per_token=4.0) == [2, 3, 4, 5]
    assert drafts([*tokens[:-1], 7, 1], drafts_per_token=1.0) == [2, 3]


def test_it_finds_what_a_plain_search_finds():
    rng = np.random.default_rng(1)
    for _ in range(300):
        tokens = rng.integers(0, rng.integers(2, 5), rng.integers(0, 30)).astype(np.int32)
        most = int(rng.integers(1, 6))
        places, length = longest(tokens, most)
        whole = tokens.tolist()
        for size in range(min(most, len(whole) - 1), 0, -1):
            ending = whole[len(whole) - size :]
            at = [
                p for p in range(size - 1, len(whole) - 1) if whole[p - size + 1 : p + 1] == ending
            ]
            if at:
                assert (places.tolist(), length) == (at, size)
                followers = Counter(whole[p + 1] for p in at)
                first = drafts(whole, 1, suffix_max=most, least_probability=0)
                assert followers[first[0]] == max(followers.values())
                break
        else:
            assert length == 0
