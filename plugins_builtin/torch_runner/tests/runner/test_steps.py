"""Steps of the torch runner: loop depth, slots and their owners, errors of one row."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from framework.contracts.sampling import SamplingParams
from framework.contracts.step import KvOp, LateInputs
from framework.errors import IntegrityError, UnsupportedError

PROMPT = [5, 17, 80, 3, 41, 9, 66, 2, 11]
RANDOM = SamplingParams(temperature=1.0, max_tokens=64, logprobs=0, seed=3)


@pytest.fixture
def model(tiny):
    return tiny("qwen3")


@pytest.mark.parametrize("sampling", [None, RANDOM])
def test_two_steps_in_flight_give_the_tokens_of_one(model, drive, sampling) -> None:
    more = {} if sampling is None else {"sampling": sampling}
    plain = drive(model.files)
    plain.admit(0, PROMPT, **more)
    plain.admit(1, PROMPT[:4], **more)
    plain.run((0, 9), (1, 4))
    for _ in range(5):
        plain.run((0, 1), (1, 1))

    deep = drive(model.files)
    deep.admit(0, PROMPT, **more)
    deep.admit(1, PROMPT[:4], **more)
    flight = [deep.plan((0, 9), (1, 4))]
    tickets = [deep.runner.submit(flight[0])]
    for _ in range(5):
        flight.append(deep.plan((0, 1), (1, 1)))
        tickets.append(deep.runner.submit(flight[-1]))
        deep.absorb(flight[-2], deep.runner.finish(tickets[-2], LateInputs()))
    deep.absorb(flight[-1], deep.runner.finish(tickets[-1], LateInputs()))
    assert deep.requests[0].tokens == plain.requests[0].tokens
    assert deep.requests[1].tokens == plain.requests[1].tokens


def test_a_third_step_in_flight_and_a_wrong_order_are_refused(model, drive) -> None:
    driver = drive(model.files)
    driver.admit(0, PROMPT)
    first = driver.runner.submit(driver.plan((0, 9)))
    second = driver.runner.submit(driver.plan((0, 1)))
    with pytest.raises(IntegrityError, match="in flight"):
        driver.runner.submit(driver.plan((0, 1)))
    with pytest.raises(IntegrityError, match="order"):
        driver.runner.finish(second, LateInputs())
    assert driver.runner.finish(first, LateInputs()).step_id == 1


def test_an_owner_that_comes_without_a_release_inherits_nothing(model, drive, helpers) -> None:
    scored = SamplingParams(temperature=0.0, prompt_logprobs=0, max_tokens=8)
    driver = drive(model.files)
    driver.admit(0, PROMPT, scored)
    driver.admit(1, [-1])
    driver.run((0, 9), (1, 1))
    for slot in (0, 1):
        driver.requests.pop(slot)
        driver.admit(slot, PROMPT[:6], generation=2)
    result = driver.run((0, 6), (1, 6))
    assert not result.errors
    assert result.prompt_logprobs == ()
    assert helpers.tokens_of(result, 0) == helpers.tokens_of(result, 1)


def test_logits_that_are_not_numbers_end_one_request_and_no_other(
    model, drive, helpers, monkeypatch
) -> None:
    driver = drive(model.files)
    driver.admit(0, PROMPT)
    driver.admit(1, PROMPT[:4])
    owner = driver.runner._loaded.model
    right = owner.logits

    def spoiled(hidden: torch.Tensor) -> torch.Tensor:
        logits = right(hidden)
        logits[0] = float("nan")
        return logits

    monkeypatch.setattr(owner, "logits", spoiled)
    result = driver.run((0, 9), (1, 4))
    assert list(result.errors) == [0]
    assert "NaN" in result.errors[0]
    assert helpers.tokens_of(result, 0) == []
    assert helpers.tokens_of(result, 1) == model.greedy(PROMPT[:4], 1)


@pytest.mark.parametrize(
    ("tokens", "words"), [([5, 96], "token ids"), ([-1], "token ids"), ([1] * 129, "do not fit")]
)
def test_a_request_the_model_cannot_compute_ends_alone(
    model, drive, helpers, tokens, words
) -> None:
    driver = drive(model.files)
    driver.admit(0, tokens)
    driver.admit(1, PROMPT[:4])
    result = driver.run((0, 1), (1, 4))
    assert words in result.errors[0]
    assert helpers.tokens_of(result, 1) == model.greedy(PROMPT[:4], 1)
    driver.release(0)
    driver.admit(0, PROMPT, generation=2)
    result = driver.run((0, 9), (1, 1))
    assert not result.errors
    assert helpers.tokens_of(result, 0) == model.greedy(PROMPT, 1)


def test_a_row_of_an_old_generation_is_passed_over_and_echoed(model, drive, helpers) -> None:
    driver = drive(model.files)
    driver.admit(0, PROMPT)
    driver.admit(1, PROMPT[:4])
    driver.run((0, 9), (1, 4))
    driver.release(0)
    driver.admit(0, PROMPT[2:], generation=9)
    driver.requests[0].generation = 8
    result = driver.run((0, 7), (1, 1))
    assert result.slots.tolist() == [0, 1]
    assert result.generations.tolist() == [8, 1]
    assert "generation 8" in result.errors[0]
    assert len(helpers.tokens_of(result, 1)) == 1


def test_a_plan_without_rows_has_effects_and_an_empty_result(model, drive, helpers) -> None:
    driver = drive(model.files)
    driver.admit(0, PROMPT)
    result = driver.run()
    assert result.token_offsets.tolist() == [0]
    assert len(result.token_ids) == 0
    assert helpers.tokens_of(driver.run((0, 9)), 0) == model.greedy(PROMPT, 1)


def test_a_released_slot_serves_its_next_owner_from_the_start(model, drive, helpers) -> None:
    driver = drive(model.files)
    driver.admit(0, PROMPT)
    driver.run((0, 9))
    driver.release(0)
    other = PROMPT[::-1]
    driver.admit(0, other, generation=2)
    driver.run((0, 4))
    assert helpers.tokens_of(driver.run((0, 5)), 0) == model.greedy(other, 1)


def test_the_longest_sequence_is_computed_and_its_last_token_sampled(model, drive, helpers) -> None:
    tokens = np.random.default_rng(1).integers(0, 96, 125).tolist()
    driver = drive(model.files, max_model_len=126)
    driver.admit(0, tokens)
    driver.run((0, 125))
    result = driver.run((0, 1))
    assert not result.errors
    assert helpers.tokens_of(result, 0) == model.greedy(driver.requests[0].tokens[:-1], 1)
    assert "at most 126" in driver.run((0, 1)).errors[0]


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"lockstep": True}, "lockstep"),
        ({"draft_parents": np.zeros(1, np.int32)}, "draft_trees"),
        ({"rows_to_pool": np.ones(1, np.bool_)}, "pooling"),
        ({"encoder_run": ("x",)}, "encoder"),
    ],
)
def test_a_plan_that_uses_what_was_not_declared_is_refused(model, drive, more, word) -> None:
    driver = drive(model.files)
    driver.admit(0, PROMPT)
    with pytest.raises(UnsupportedError, match=word):
        driver.run((0, 9), **more)


def test_health_counts_steps_and_other_operations_are_refused(model, drive) -> None:
    driver = drive(model.files)
    driver.admit(0, PROMPT)
    driver.run((0, 9))
    assert driver.runner.control("health", {}) == {"ready": True, "steps": 1, "in_flight": 0}
    with pytest.raises(UnsupportedError, match="dream"):
        driver.runner.control("dream", {})
    driver.runner.close()
    driver.runner.close()
    with pytest.raises(IntegrityError, match="closed"):
        driver.runner.submit(driver.plan((0, 1)))


def test_copied_pages_hold_what_their_source_held_and_zeroed_ones_nothing(
    model, drive, helpers
) -> None:
    driver = drive(model.files)
    driver.admit(0, PROMPT)
    driver.run((0, 9))
    source = driver.runner._computer.batch.pages.groups[0][0]
    driver.admit(1, PROMPT)
    driver.requests[1].computed = 8
    plan = driver.plan((1, 1))
    target = plan.pages[0].ids
    operations = (
        KvOp("copy", 0, int(source[0]), int(target[0])),
        KvOp("copy", 0, int(source[1]), int(target[1])),
        KvOp("zero", 0, 0, int(target[2])),
    )
    ticket = driver.runner.submit(replace(plan, kv_ops=operations))
    result = driver.runner.finish(ticket, LateInputs())
    np.testing.assert_allclose(
        helpers.whole(result.logprobs, 0), model.log_softmax(PROMPT)[-1], atol=1e-4
    )
    view = driver.runner._computer.cache.layers["layers.0"].view[int(target[2])]
    assert view[0].any(), "the step writes after the operations"
    assert not view[1:].any()
