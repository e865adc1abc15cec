"""Drafts and grammar masks in a step."""

import numpy as np
import pytest

from framework.contracts.sampling import SamplingParams
from framework.contracts.step import LateInputs

PROMPT = [5, 17, 80, 3, 41, 9, 66, 2, 11]
RANDOM = SamplingParams(temperature=1.0, max_tokens=64, logprobs=0, seed=3)
PENALTIES = SamplingParams(
    temperature=0.0, max_tokens=64, repetition_penalty=1.5, frequency_penalty=2.0
)


def bits(*allowed: int) -> np.ndarray:
    words = np.zeros(3, np.uint32)
    for token in allowed:
        words[token // 32] |= np.uint32(1 << (token % 32))
    return words


@pytest.fixture
def model(tiny):
    return tiny("qwen3")


@pytest.mark.parametrize("sampling", [None, RANDOM, PENALTIES])
def test_drafts_never_change_the_tokens(model, drive, helpers, sampling) -> None:
    more = {} if sampling is None else {"sampling": sampling}
    plain = drive(model.files)
    plain.admit(0, PROMPT, **more)
    right = plain.generate(0, 12)

    driver = drive(model.files)
    driver.admit(0, PROMPT, **more)
    driver.admit(1, PROMPT[:3])
    driver.run((0, 9), (1, 3))
    wrong = (right[2] + 1) % 96
    cases = [
        (right[1:4], 3),  # all right
        ([right[5], wrong], 1 + (wrong == right[6])),
        ([(right[7] + 1) % 96, right[8]], 0),
    ]
    for drafts, accepted in cases:
        result = driver.run((1, 1), (0, 1 + len(drafts)), drafts={0: drafts})
        assert result.accepted.tolist() == [0, accepted]
        assert len(helpers.tokens_of(result, 0)) == 1
        assert len(helpers.tokens_of(result, 1)) == accepted + 1
    made = driver.requests[0].tokens[len(PROMPT) :]
    assert made == right[: len(made)]
    assert len(made) == 8


def test_log_probabilities_follow_accepted_drafts_only(model, drive, helpers) -> None:
    right = model.greedy(PROMPT, 4)
    driver = drive(model.files)
    driver.admit(0, PROMPT)
    driver.admit(1, PROMPT[:5])
    driver.run((0, 9), (1, 5))
    drafts = [right[1], (right[2] + 1) % 96, 7]
    result = driver.run((0, 4), (1, 1), drafts={0: drafts})
    assert helpers.tokens_of(result, 0) == right[1:3]
    assert result.logprob_tokens.tolist() == [0, 1, 2]
    known = PROMPT + right[:2]
    reference = model.log_softmax(known)
    np.testing.assert_allclose(helpers.whole(result.logprobs, 0), reference[-2], atol=1e-4)
    np.testing.assert_allclose(helpers.whole(result.logprobs, 1), reference[-1], atol=1e-4)
    own = driver.requests[1].tokens[:-1]
    np.testing.assert_allclose(
        helpers.whole(result.logprobs, 2), model.log_softmax(own)[-1], atol=1e-4
    )


def test_a_grammar_mask_reaches_its_own_row_and_no_other(model, drive, helpers) -> None:
    driver = drive(model.files)
    for slot in range(3):
        driver.admit(slot, PROMPT[: 4 + slot])
    late = LateInputs(
        bitmask=np.stack([bits(90), bits(2, 3)]),
        bitmask_rows=np.array([2, 0], np.int32),
        covered=np.zeros(2, np.int32),
    )
    result = driver.run((2, 6), (0, 4), (1, 5), late=late)
    assert helpers.tokens_of(result, 2) == [90]
    assert helpers.tokens_of(result, 0)[0] in (2, 3)
    assert helpers.tokens_of(result, 1) == model.greedy(PROMPT[:4], 1)


def test_masks_along_drafts_apply_at_their_place_and_end_the_row(model, drive, helpers) -> None:
    driver = drive(model.files)
    driver.admit(0, PROMPT)
    first = driver.run((0, 9))
    assert len(helpers.tokens_of(first, 0)) == 1
    # Masks for the points before draft 0 and before draft 1; none after draft 1.
    late = LateInputs(
        bitmask=np.stack([bits(8), bits(9)]),
        bitmask_rows=np.zeros(2, np.int32),
        covered=np.array([0, 1], np.int32),
    )
    result = driver.run((0, 3), drafts={0: [8, 9]}, late=late)
    assert helpers.tokens_of(result, 0) == [8, 9]
    assert result.accepted.tolist() == [1]
