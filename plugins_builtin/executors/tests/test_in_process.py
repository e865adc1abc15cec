"""The in-process executor in front of the published scripted runner."""

import pytest

from framework.contracts.model_runner import RunnerContext
from framework.contracts.model_source import ModelFiles
from framework.errors import IntegrityError, PluginError, UnsupportedError
from framework.plugins.registry import PluginRegistry
from framework.testing.scripted import ScriptedRunner
from framework_executors.in_process import InProcessExecutor

SCRIPTED = {"model_runner:scripted": "framework.testing.scripted:ScriptedRunner"}


def context(tmp_path, **choices: str) -> RunnerContext:
    model = ModelFiles(name="m", root=tmp_path, weights=(), format="none", config={})
    return RunnerContext(
        model=model,
        registry=PluginRegistry(ad_hoc=SCRIPTED),
        dtype="auto",
        max_slots=2,
        max_step_tokens=8,
        max_model_len=None,
        choices=choices,
    )


def test_the_chosen_runner_is_made_and_every_call_reaches_it(tmp_path) -> None:
    executor = InProcessExecutor()
    info = executor.load(context(tmp_path, model_runner="scripted"))
    assert info == ScriptedRunner().info()
    with pytest.raises(UnsupportedError, match="scripted"):
        executor.control("sleep", {})


def test_an_unknown_runner_is_an_error_that_names_it(tmp_path) -> None:
    with pytest.raises(PluginError, match="scriptd"):
        InProcessExecutor().load(context(tmp_path, model_runner="scriptd"))


def test_a_closed_executor_refuses_work_and_closes_twice(tmp_path) -> None:
    executor = InProcessExecutor()
    executor.load(context(tmp_path, model_runner="scripted"))
    executor.close()
    executor.close()
    with pytest.raises(IntegrityError, match="closed"):
        executor.control("health", {})
