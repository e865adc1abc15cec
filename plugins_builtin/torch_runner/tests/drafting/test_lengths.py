"""How many drafts are worth their time; all clocks are fake."""

import numpy as np
import pytest

from framework_torch.drafting.lengths import PAUSE, DraftLengths, StepCost


def lengths(base=10.0, each=1.0, most=8):
    """Of a machine whose steps take so many seconds and so many per token."""
    made = DraftLengths(4, most)
    for tokens in (1, 4, 2, 6, 3, 1):
        made.cost.add(tokens, base + each * tokens)
    for slot in range(4):
        made.start(slot)
    return made


def see(made, drafts, accepted, times=6, slot=0):
    for _ in range(times):
        made.verified(np.array([slot]), np.array([drafts]), np.array([accepted]))


def wanted(made, rows=1, slot=0):
    return int(made.wanted(np.array([slot], np.int32), rows)[0])


def test_drafts_that_hit_grow_to_the_most_and_those_that_miss_shrink_to_none():
    made = lengths()
    first = wanted(made)
    assert 1 <= first < 8
    see(made, 4, 4)
    assert wanted(made) == 8
    see(made, 8, 0, times=12)
    assert wanted(made) == 0
    assert wanted(made, slot=1) == first, "the others are not concerned"


def test_a_request_that_is_worth_none_is_tried_again_and_can_recover():
    made = lengths()
    see(made, 4, 0, times=12)
    counts = [wanted(made) for _ in range(2 * PAUSE + 2)]
    assert counts == [*([0] * PAUSE), 1, *([0] * PAUSE), 1]
    see(made, 1, 1, times=4)
    assert wanted(made) >= 2


def test_a_new_owner_of_a_slot_begins_where_all_have_come_to():
    made = lengths()
    first = wanted(made)
    see(made, 4, 0, times=12)
    see(made, 4, 4, times=24, slot=1)
    made.start(0)
    assert wanted(made) >= first, "nothing of the one before it is left"
    see(made, 4, 0, times=300, slot=1)
    made.start(0)
    assert wanted(made) == 0, "where all have missed a new one need not miss first"
    see(made, 1, 1, times=6)
    assert wanted(made) >= 2


@pytest.mark.parametrize("rows", [1, 4, 16])
@pytest.mark.parametrize("each", [0.5, 4.0, 20.0])
def test_tries_that_fail_cost_a_hundredth_of_the_time(rows, each):
    made = DraftLengths(16, 8)
    base, slots = 10.0, np.arange(rows, dtype=np.int32)
    for tokens in (1, 4, 2, 6, 3, 1):
        made.cost.add(tokens, base + each * tokens)
    for slot in range(rows):
        made.start(slot)
        see(made, 4, 0, times=20, slot=slot)
    with_tries = without = 0.0
    for _ in range(4000):
        drafts = made.wanted(slots, rows)
        tried = np.flatnonzero(drafts)
        if len(tried):
            made.verified(slots[tried], drafts[tried], np.zeros(len(tried), np.int32))
        without += base + each * rows
        with_tries += base + each * (rows + int(drafts.sum()))
    assert without / with_tries > 0.985


def test_many_requests_in_a_step_leave_less_to_win():
    made = lengths()
    see(made, 4, 3)
    counts = [wanted(made, rows) for rows in (1, 2, 4, 16, 64, 1024)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] >= 4
    assert counts[-1] == 0


def test_a_machine_on_which_tokens_cost_nothing_takes_all():
    made = lengths(base=10.0, each=0.01)
    see(made, 4, 2)
    assert wanted(made, rows=16) > wanted(lengths(each=2.0), rows=16)


def test_the_cost_is_the_line_through_what_was_measured():
    cost = StepCost()
    assert cost.share() == 0.1
    for tokens in (1, 5, 2, 7):
        cost.add(tokens, 0.09 + 0.01 * tokens)
    assert cost.share() == pytest.approx(0.1)
    for tokens in (1, 5, 2, 7) * 40:  # the machine has changed
        cost.add(tokens, 0.08 + 0.02 * tokens)
    assert cost.share() == pytest.approx(0.2, rel=0.05)


def test_the_time_to_propose_counts():
    made = lengths()
    before = made.cost.share()
    for _ in range(50):
        made.cost.add_proposal(4, 8.0)
    assert made.cost.share() > 2 * before
    made.cost.add_proposal(0, 100.0)


def test_times_that_cannot_be_are_no_division_by_nothing():
    cost = StepCost()
    for tokens, seconds in ((1, 0.0), (4, 0.0), (2, 5.0), (9, 1e-9)):
        cost.add(tokens, seconds)
        assert 0.005 <= cost.share() <= 2.0
