"""Memory that a sleeping runner gives back, and takes again."""

from __future__ import annotations

import dataclasses
import gc
import weakref

import pytest

from framework.errors import IntegrityError, ModelError
from framework_torch import loading

PROMPT = [3, 14, 15, 92, 65, 35, 89, 79, 32]


@pytest.fixture
def model(tiny):
    return tiny("qwen3")


def generate(driver, generation):
    driver.admit(0, PROMPT, generation=generation)
    driver.run((0, len(PROMPT)))
    found = driver.generate(0, 5)
    driver.release(0)
    return found


@pytest.mark.parametrize("levels", [(1,), (1, 2)])
def test_a_runner_that_slept_computes_as_before(model, drive, levels) -> None:
    driver = drive(model.files)
    before = generate(driver, 1)
    runner = driver.runner
    cache = weakref.ref(runner._computer.cache._buffer)
    weights = weakref.ref(next(runner._loaded.model.parameters()))
    for level in levels:
        runner.control("sleep", {"level": level})
    gc.collect()
    assert cache() is None
    assert (weights() is None) == (max(levels) == 2)
    with pytest.raises(IntegrityError):
        runner.submit(driver.plan())
    runner.control("wake", {})
    runner.control("wake", {})
    driver.step -= 1  # the refused plan
    assert generate(driver, 2) == before


def test_a_request_that_was_in_a_slot_is_not_there_after_sleep(model, drive) -> None:
    driver = drive(model.files)
    driver.admit(0, PROMPT)
    driver.run((0, len(PROMPT)))
    driver.runner.control("sleep", {"level": 1})
    driver.runner.control("wake", {})
    result = driver.run((0, 1))
    assert list(result.errors) == [0]


def test_it_sleeps_only_with_nothing_in_flight(model, drive) -> None:
    driver = drive(model.files)
    ticket = driver.runner.submit(driver.plan())
    with pytest.raises(IntegrityError, match="in flight"):
        driver.runner.control("sleep", {"level": 1})
    assert ticket.step_id == 1


def test_files_of_another_model_do_not_wake_it(model, drive, monkeypatch) -> None:
    driver = drive(model.files)
    before = generate(driver, 1)
    driver.runner.control("sleep", {"level": 2})
    true = loading.load

    def other(*arguments):
        loaded = true(*arguments)
        layers = dict(list(loaded.info.layers.items())[1:])
        return dataclasses.replace(loaded, info=dataclasses.replace(loaded.info, layers=layers))

    with monkeypatch.context() as patch:
        patch.setattr(loading, "load", other)
        with pytest.raises(ModelError, match="another model"):
            driver.runner.control("wake", {})
    driver.runner.control("wake", {})
    assert generate(driver, 2) == before
