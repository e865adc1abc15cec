"""Adapters where steps are graphs: rows with one change their results as ever."""

from __future__ import annotations

import numpy as np
import pytest

from framework.plugins.registry import PluginRegistry
from framework_torch.graphs.modes import Mode
from framework_torch.options import TorchOptions
from plugins_builtin.torch_runner.tests.graphs import recorded

PROMPTS = ([5, 9, 3, 80, 41], [7, 2, 2, 61])
PLUGINS = {
    "platform:recorded": f"{recorded.__name__}:RecordingPlatform",
    "attention_backend:gather": f"{recorded.__name__}:GatherBackend",
}


@pytest.fixture(scope="module")
def registry():
    return PluginRegistry(ad_hoc=PLUGINS)


def tokens_of(driver, numbers):
    for slot, (prompt, number) in enumerate(zip(PROMPTS, numbers, strict=True)):
        driver.admit(slot, prompt, adapter=number)
    driver.run((0, 5), (1, 4))
    for _ in range(4):
        driver.run((0, 1), (1, 1))
    found = [driver.requests[slot].tokens for slot in (0, 1)]
    for slot in (0, 1):
        driver.release(slot)
    return found


@pytest.mark.parametrize("mode", ["piecewise", "full_and_piecewise"])
def test_only_steps_with_adapters_leave_the_graphs(drive, tiny, lora, saved, mode):
    model, given = tiny("llama"), {}
    adapter = lora.random_adapter(model.reference, 8, 1)
    for name in ("none", mode):
        driver = drive(
            model.files,
            4,
            options=TorchOptions(graph_mode=name, capture_sizes=(1, 2, 4, 8, 16)),
            choices={"platform": "recorded", "attention_backend": "gather"},
            adapters=lora.limits,
            kernel_set="plain",
            max_slots=4,
            max_step_tokens=16,
        )
        assert lora.ready(driver.runner, 1, saved(adapter))["state"] == "ready"
        given[name] = [tokens_of(driver, numbers) for numbers in ((1, None), (None, None), (1, 1))]
        # One story without adapters: a step of prompts, four of one token a row.
        replayed = driver.runner._computer.forward.replayed if name != "none" else {}
        assert name == "none" or (replayed[Mode.NONE], sum(replayed.values())) == (10, 15)
    assert given[mode] == given["none"]
    alone, without, both = given["none"]
    assert alone[0] != without[0]
    assert alone[1] == without[1]
    assert np.all([one != two for one, two in zip(both, without, strict=True)])
