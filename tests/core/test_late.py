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
    assert merge.add(part) is None
    assert merge.result().covered.tolist() == [0, 1, 2, 0]


@pytest.mark.parametrize(("rows", "covered"), [([3, 3], [1, 1]), ([3, 3], [])])
def test_two_masks_for_one_place_are_a_fault(rows, covered):
    assert "twice" in flaw_of(masks(rows, covered), {3}, 64)
