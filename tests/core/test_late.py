"""Masks of a row with drafts: one for its next token, and one after each draft."""

from __future__ import annotations

import numpy as np
import pytest

from framework.contracts.step import LateInputs
from framework.core.late import LateMerge, flaw_of


def masks(rows, covered):
    return LateInputs(
        bitmask=np.ones((len(rows), 2), np.uint32),
        bitmask_rows=np.array(rows, np.int32),
        covered=np.array(covered, np.int32),
    )


def test_a_row_may_have_a_mask_after_each_of_its_drafts():
    part = masks([3, 3, 3, 5], [0, 1, 2, 0])
    assert flaw_of(part, {3, 5}, 64) is None
    merge = LateMerge()
    merge.add(part)
    assert merge.result().covered.tolist() == [0, 1, 2, 0]


@pytest.mark.parametrize(("rows", "covered"), [([3, 3], [1, 1]), ([3, 3], [])])
def test_two_masks_for_one_place_are_a_fault(rows, covered):
    assert "twice" in flaw_of(masks(rows, covered), {3}, 64)


def allowed(*places):
    """places: (row, drafts before, the word of allowed tokens)."""
    rows, covered, words = zip(*places, strict=True)
    return LateInputs(
        bitmask=np.array([[word] for word in words], np.uint32),
        bitmask_rows=np.array(rows, np.int32),
        covered=np.array(covered, np.int32),
    )


def merged(*parts):
    merge = LateMerge()
    for part in parts:
        merge.add(part)
    found = merge.result()
    places = zip(found.bitmask_rows, found.covered, found.bitmask[:, 0], strict=True)
    return [tuple(map(int, place)) for place in places]


def test_a_token_is_allowed_that_all_participants_allow():
    grammar = allowed((4, 0, 0b0111), (1, 0, 0b1000))
    budget = allowed((2, 0, 0b0001), (4, 0, 0b0110))
    words = [(1, 0, 0b1000), (2, 0, 0b0001), (4, 0, 0b0110)]
    assert sorted(merged(grammar, budget)) == sorted(merged(budget, grammar)) == words
    third = allowed((4, 0, 0b1010))
    assert sorted(merged(grammar, third, budget))[-1] == (4, 0, 0b0010)


def test_drafts_count_as_far_as_all_participants_have_masked():
    """After a draft that one of them forbids it does not know what may follow."""
    long = allowed((0, 0, 3), (0, 1, 3), (0, 2, 3), (7, 0, 1), (7, 1, 1))
    short = allowed((0, 0, 6), (0, 1, 5))
    words = [(0, 0, 2), (0, 1, 1), (7, 0, 1), (7, 1, 1)]
    assert sorted(merged(long, short)) == sorted(merged(short, long)) == words


def test_masks_without_drafts_need_no_counts():
    bare = LateInputs(bitmask=np.array([[5]], np.uint32), bitmask_rows=np.array([3], np.int32))
    assert merged(bare, allowed((3, 0, 4))) == [(3, 0, 4)]
    assert merged(LateInputs(), bare) == [(3, 0, 5)]
