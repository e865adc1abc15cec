"""How many pages running requests may still claim, where whole sequences must fit."""

from __future__ import annotations

import pytest

from framework.contracts.kv_cache_spec import (
    CrossAttentionSpec,
    FullAttentionSpec,
    SlidingWindowSpec,
)
from framework.core import admission
from framework.core.kv.claims import claim_of

HEADS = {"num_kv_heads": 1, "head_size": 1, "head_size_v": 1, "dtype": "float32"}


@pytest.mark.parametrize("depth", [1, 2])
def test_pages_that_are_never_given_back_count_once_though_two_share_them(engine, depth):
    """Three requests of six pages each, four of them the same: 4 + 3 * 2 pages and the null page
    are enough for all at one time, and one page less is not."""
    for pages, together in ((11, 3), (10, 2)):
        one = engine(
            runner={"num_pages": pages, "page_tokens": 4, "max_model_len": 24},
            whole_sequence_must_fit=True,
            loop_depth=depth,
        )
        one.add("0", [1] * 17, 7)
        for _ in range(depth + 1):  # the pages of its prompt have names
            one.step()
        most = 0
        for name in "12":
            one.add(name, [1] * 17, 7)
        for _ in range(3):
            one.step()
            most = max(most, one.core.stats.running)
        one.run()
        assert most == together
        assert (one.answers["1"].cached, one.core.stats.preemptions) == (16, 0)


@pytest.mark.parametrize(
    ("spec", "newcomers", "running"),
    [
        # Of 5 pages at most, the two that are hit are no use to anybody who gives them back.
        (SlidingWindowSpec(**HEADS, window=6), [3, 4, 4], [4, 4]),
        # Of 6 pages, all that a request reads are its own until it ends.
        (FullAttentionSpec(**HEADS), [4, 3, 3], [3, 3]),
    ],
)
def test_a_page_that_is_given_back_counts_for_the_one_that_has_it_alone(
    engine, monkeypatch, spec, newcomers, running
):
    found, true = [], admission.claim_of_newcomer

    def noted(*arguments):
        found.append(true(*arguments))
        return found[-1]

    monkeypatch.setattr(admission, "claim_of_newcomer", noted)
    one = engine(
        runner={"layers": {"a": spec}, "num_pages": 40, "page_tokens": 4, "max_model_len": 40},
        max_num_batched_tokens=8,
        whole_sequence_must_fit=True,
    )
    one.add("first", [1] * 9, 12)
    one.step()
    one.step()
    one.add("second", [1] * 9, 12)
    one.step()
    state = one.core._state
    assert one.answers["second"].cached == 8
    assert [claim_of(state.kv, slot, 21) for slot in state.running] == running
    one.add("third", [1] * 9, 12)
    one.step()
    assert found == newcomers
    one.run()


@pytest.mark.parametrize(("pages", "running"), [(13, 2), (12, 1)])
def test_who_hits_the_pages_of_another_leaves_room_for_him_to_need_as_many(engine, pages, running):
    """The first has 3 of 5 pages, 2 of which are no longer his own to give back when the second
    hits them: he may claim 2 + 2, and the second 4 beside the one that it takes now."""
    one = engine(
        runner={
            "layers": {"a": SlidingWindowSpec(**HEADS, window=6)},
            "num_pages": pages,
            "page_tokens": 4,
            "max_model_len": 40,
        },
        max_num_batched_tokens=8,
        whole_sequence_must_fit=True,
    )
    one.add("first", [1] * 9, 12)
    one.step()
    one.step()
    one.add("second", [1] * 9, 12)
    one.step()
    assert one.core.stats.running == running
    one.run()
    assert one.core.stats.preemptions == 0


def test_what_an_encoder_left_is_claimed_once(engine):
    """Each request takes three pages for its encoder's states at once and six for its tokens:
    two fit into 18 pages, in 17 the second waits."""
    cross = CrossAttentionSpec(**HEADS, encoder_length=9)
    for pages, together in ((19, 2), (18, 1)):
        one = engine(
            runner={
                "layers": {"cross": cross, "full": FullAttentionSpec(**HEADS)},
                "num_pages": pages,
                "page_tokens": 4,
                "max_model_len": 24,
            },
            whole_sequence_must_fit=True,
        )
        for name in "ab":
            one.add(name, [ord(name)] * 9, 15, encoder_tokens=9)
        one.step()
        assert one.core.stats.running == together
        one.run()


@pytest.mark.parametrize("depth", [1, 2])
def test_what_is_unpinned_is_its_readers_own_in_the_next_step(engine, depth):
    """Also where steps equal the one before: who waited for it is looked at again."""
    window = SlidingWindowSpec(**HEADS, window=30)
    one = engine(
        runner={
            "layers": {"a": window},
            "num_pages": 9,
            "page_tokens": 8,
            "max_model_len": 40,
        },
        max_num_batched_tokens=16,
        whole_sequence_must_fit=True,
        loop_depth=depth,
    )
    one.add("before", [1] * 17, 1)
    one.run()
    key, pinned = one.core.pin_prefix([1] * 16)
    assert pinned == 16
    one.add("reads", [1] * 17, 23)
    one.add("waits", [2] * 9, 7)
    for _ in range(4):
        one.step()
    state = one.core._state
    assert (state.steady is not None, one.core.stats.waiting) == (True, 1)
    assert one.core.unpin_prefix(key)
    for _ in range(depth):
        one.step()
    assert one.core.stats.waiting == 0
    one.run()
    assert one.core.stats.preemptions == 0
