"""Log-probabilities of prompt tokens."""

import numpy as np
import pytest

from framework.contracts.sampling import SamplingParams

PROMPT = [5, 17, 80, 3, 41, 9, 66, 2, 11]


@pytest.fixture
def model(tiny):
    return tiny("qwen3")


@pytest.mark.parametrize("chunks", [(9,), (1, 8), (4, 1, 4), (3, 3, 3)])
def test_prompt_scores_do_not_depend_on_chunks(model, drive, helpers, chunks) -> None:
    sampling = SamplingParams(temperature=0.0, prompt_logprobs=-1, max_tokens=1)
    driver = drive(model.files)
    driver.admit(0, PROMPT, sampling)
    driver.admit(1, PROMPT[:2])
    driver.run((1, 2))
    got = {}
    for chunk in chunks:
        for part in driver.run((1, 1), (0, chunk)).prompt_logprobs:
            assert part.row == 1
            for index in range(len(part.logprobs)):
                assert part.start + index not in got
                got[part.start + index] = helpers.whole(part.logprobs, index)
    right = model.log_softmax(PROMPT)
    assert sorted(got) == list(range(1, 9))
    for position, values in got.items():
        np.testing.assert_allclose(values, right[position - 1], atol=1e-4)


def test_prompt_scores_go_on_where_a_preemption_stopped_them(model, drive) -> None:
    sampling = SamplingParams(temperature=0.0, prompt_logprobs=2, max_tokens=8)
    driver = drive(model.files)
    tokens = [*PROMPT, 1, 2]
    driver.admit(0, tokens, sampling, num_prompt=9, prompt_logprobs_from=6, generation=4)
    (part,) = driver.run((0, 11)).prompt_logprobs
    assert (part.start, len(part.logprobs)) == (6, 3)
    assert part.logprobs.ids[part.logprobs.offsets[:-1]].tolist() == PROMPT[6:]


def test_a_prompt_position_is_scored_once_though_it_is_computed_again(model, drive) -> None:
    sampling = SamplingParams(temperature=0.0, prompt_logprobs=0, max_tokens=8)
    driver = drive(model.files)
    driver.admit(0, PROMPT, sampling)
    driver.run((0, 5))
    driver.requests[0].computed = 2
    (part,) = driver.run((0, 7)).prompt_logprobs
    assert (part.start, len(part.logprobs)) == (6, 3)


def test_prompt_scores_in_pieces_equal_the_whole(model, drive, monkeypatch) -> None:
    from framework_torch import prompt_scores

    sampling = SamplingParams(temperature=0.0, prompt_logprobs=3, max_tokens=1)
    parts = []
    for piece in (prompt_scores.PIECE, 2 * 96):
        monkeypatch.setattr(prompt_scores, "PIECE", piece)
        driver = drive(model.files)
        driver.admit(0, PROMPT, sampling)
        parts += driver.run((0, 9)).prompt_logprobs
    whole, pieces = (part.logprobs for part in parts)
    assert whole.offsets.tolist() == pieces.offsets.tolist()
    assert whole.ids.tolist() == pieces.ids.tolist()
    assert whole.ranks.tolist() == pieces.ranks.tolist()
    np.testing.assert_allclose(whole.values, pieces.values, atol=1e-5)


def test_a_request_that_only_scores_its_prompt_never_samples(model, drive, helpers) -> None:
    sampling = SamplingParams(temperature=0.0, prompt_logprobs=0, max_tokens=0)
    driver = drive(model.files)
    driver.admit(0, PROMPT, sampling)
    result = driver.run((0, 9))
    assert helpers.tokens_of(result, 0) == []
    assert not result.errors
    assert len(result.prompt_logprobs[0].logprobs) == 8
