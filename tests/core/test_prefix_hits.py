"""Names of pages, which pages are given up first, and how many are planned."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest

from framework.contracts.messages import EngineInput
from framework.contracts.sampling import SamplingParams
from framework.core.kv.hashing import PageHasher
from framework.core.request import Request


def names(tokens, identity="model", **more):
    """Names of the full pages, of two tokens, of a request."""
    entry = EngineInput(
        request_id="a",
        tokens=np.array(tokens, np.int32),
        sampling=SamplingParams(),
        seed=0,
        max_total=99,
        **more,
    )
    request = Request(entry, 1, 0.0, 0)
    return PageHasher(identity, 2).extend(request, request.tokens, len(tokens) // 2)


def test_the_name_of_a_page_stands_for_all_tokens_before_it():
    first, second = names([1, 2, 3, 4, 5]), names([9, 9, 3, 4])
    assert names([1, 2, 3, 4]) == first[:2]
    assert len({*first, *second}) == 4
    assert len(set(names([1, 1, 1, 1]))) == 2


@pytest.mark.parametrize("steps", [(5,), (1, 2, 5), (2, 2, 4, 5)])
def test_names_are_the_chain_of_digests_that_the_module_describes(steps):
    """Computed here by hand, and found in one piece as in several."""
    tokens = np.arange(1, 12, dtype=np.int32) * 70_001
    entry = EngineInput(
        request_id="a", tokens=tokens, sampling=SamplingParams(), seed=0, max_total=99, salt="s"
    )
    request, hasher = Request(entry, 1, 0.0, 0), PageHasher("model", 2)
    root = b"root" + b"".join(len(t).to_bytes(8, "little") + t for t in (b"model", b"2", b"1"))
    start = sha256(sha256(root).digest() + b"salt" + (1).to_bytes(8, "little") + b"s").digest()
    data = tokens.astype("<i4").tobytes()
    chain = [sha256(start + data[: 8 * count]).digest() for count in range(1, 6)]
    for count in steps:
        assert hasher.extend(request, tokens, count)[:count] == chain[:count]
    assert request.hashes == chain


@pytest.mark.parametrize(
    "other",
    [
        {"identity": "another model"},
        {"salt": ""},
        {"salt": "s"},
        {"adapter": 0},
        {"adapter": 1},
        {"payloads": {"image": "x"}},
        {"payloads": {"image": "y"}},
        {"encoder_tokens": 4},
        {"encoder_tokens": 5},
        {"encoder_tokens": 5, "extras": {"sound": b"x"}},
        {"encoder_tokens": 5, "extras": {"sound": b"y"}},
    ],
)
def test_whatever_changes_the_content_changes_every_name(other):
    own = names([1, 2, 3, 4], **other)
    assert not set(names([1, 2, 3, 4])) & set(own)
    assert _SEEN.setdefault(own[0], other) == other


_SEEN: dict[bytes, object] = {}
"""Who has a name, over all cases: no two have one."""


def test_what_only_plugins_read_leaves_the_names_of_a_decoder_alone():
    """A grammar changes what is sampled, and nothing in the cache."""
    assert names([1, 2, 3, 4], extras={"grammar": b"x"}) == names([1, 2, 3, 4])


def test_the_end_of_a_prefix_is_given_up_before_its_beginning(engine):
    one = engine(runner={"num_pages": 11}, max_model_len=40)
    one.add("old", [1] * 17, max_tokens=1)
    one.run()
    one.add("new", [2] * 29, max_tokens=1)  # 8 of 10 pages; 6 were never used
    one.run()
    one.add("again", [1] * 17, max_tokens=1)
    assert one.run()["again"].cached == 8


def test_what_was_used_last_is_given_up_last(engine):
    one = engine(runner={"num_pages": 7}, max_model_len=24)
    for name, token in (("a", 1), ("b", 2), ("a again", 1), ("c", 3), ("a last", 1), ("b last", 2)):
        one.add(name, [token] * 9, max_tokens=1)
        one.run()
    # "c" takes two pages without a name and one of "b", which was used longest ago.
    assert [answer.cached for answer in one.answers.values()] == [0, 0, 8, 0, 8, 4]


def test_a_page_that_was_lost_is_not_hit_and_what_lies_before_it_is(engine):
    one = engine(runner={"lose_pages": {2: [2]}})
    one.add("a", [1] * 13, max_tokens=3)
    one.run()
    entered = [plan for plan in one.runner.plans if plan.admitted]
    assert [plan.computed.tolist() for plan in entered] == [[0], [4]]


def test_a_nameless_copy_of_a_page_does_not_take_the_name(engine):
    """Two requests that compute the same at once: one page holds the name, both are freed."""
    one = engine()
    for name in "ab":
        one.add(name, [1] * 9, max_tokens=2)
    one.run()
    assert one.core._state.kv.pool.num_hashed == 2


def test_no_more_pages_are_planned_than_all_slots_can_fill(engine):
    one = engine(runner={"num_pages": 1000}, max_model_len=10, max_num_seqs=3)
    assert one.core.cache_plan.num_pages == 1 + 3 * 3


@pytest.mark.parametrize("page_tokens", [1, 2, 4])
def test_a_hit_skips_no_prompt_position_whose_log_probability_is_missing(engine, page_tokens):
    one = engine(runner={"page_tokens": page_tokens})
    for name in ("cold", "warm"):
        one.add(name, [1] * 9, max_tokens=2, prompt_logprobs=0)
        one.run()
    assert one.answers["warm"].prompt_logprobs == {p: -p for p in range(1, 9)}


@pytest.mark.parametrize("budget", [3, 100])
def test_what_a_runner_scores_again_after_a_preemption_is_told_once(engine, budget):
    """`prompt_logprobs_from` saves the runner work; the core does not rely on it."""
    one = engine(
        runner={"num_pages": 12}, enable_prefix_caching=False, max_num_batched_tokens=budget
    )
    score = one.runner._score

    def careless(row, occupant, computed, new):
        occupant.request = replace(occupant.request, prompt_logprobs_from=1)
        return score(row, occupant, computed, new)

    one.runner._score = careless
    for index in range(4):
        one.add(str(index), [index] * 9, max_tokens=16, prompt_logprobs=0)
    answers = one.run()
    assert one.core.stats.preemptions > 0
    assert [a.prompt_logprobs for a in answers.values()] == [{p: -p for p in range(1, 9)}] * 4


def test_a_new_prompt_is_hashed_as_far_as_somebody_could_have_asked_it(engine):
    """One of a hundred thousand tokens must not hold up the step in which it starts."""
    one = engine(max_num_batched_tokens=4)
    one.add("first", [1] * 100, 2)
    one.step()
    (request,) = one.core._state.requests.values()
    assert len(request.hashes) == 2
    one.run()
    one.add("again", [1] * 99 + [2], 2)
    assert one.run()["again"].cached == 96
