"""What cannot be served is refused with the reason, and the next adapter is served."""

import dataclasses

import pytest
import torch

from framework.contracts.lora import AdapterLimits, LowRank
from framework.contracts.model_runner import RunnerContext
from framework.errors import ConfigError, InputError, UnsupportedError
from framework_torch.models.decoder import Decoder
from framework_torch.runner import TorchRunner

Q = "model.layers.0.self_attn.q_proj"


def spare(name, down, up):
    return lambda updates: updates | {name: LowRank(down=down, up=up, scale=1.0)}


UNFIT = {
    "target": (spare("lm_head", torch.ones(4, 64), torch.ones(96, 4)), "does not let adapters"),
    "layer": (
        spare("model.layers.7.self_attn.q_proj", torch.ones(4, 64), torch.ones(64, 4)),
        "does not let adapters",
    ),
    "rank": (spare(Q, torch.ones(65, 64), torch.ones(64, 65)), "rank 65 is above max_lora_rank"),
    "inputs": (spare(Q, torch.ones(4, 63), torch.ones(64, 4)), "has other sizes in this model"),
    "outputs": (spare(Q, torch.ones(4, 64), torch.ones(60, 4)), "has other sizes in this model"),
}


@pytest.mark.parametrize("what", list(UNFIT))
def test_an_adapter_of_another_model_is_refused(driver, good, saved, lora, what):
    """With what was expected, and for which model it was made."""
    change, reason = UNFIT[what]
    told = lora.ready(
        driver.runner, 3, saved(dataclasses.replace(good, updates=change(good.updates)))
    )
    assert told["state"] == "failed"
    assert reason in told["reason"]
    assert "a tiny model" in told["reason"]


def test_a_request_whose_adapter_is_not_there_brings_an_error_and_no_token(driver, good, saved):
    """Never the model's own output in its place; rows beside it go on."""
    driver.admit(0, [5, 6, 7], adapter=9)
    driver.admit(1, [5, 6, 7])
    result = driver.run((0, 3), (1, 3))
    assert "load id 9 is not loaded" in result.errors[0]
    assert result.token_offsets.tolist() == [0, 0, 1]


def test_a_dropped_adapter_stays_with_who_entered_with_it(driver, good, saved, lora, tiny):
    """Its tokens are those of the adapter up to its end; the next one is refused."""
    lora.ready(driver.runner, 1, saved(good))
    merged = lora.merged(tiny("llama").reference, good)
    driver.admit(0, [5, 6, 7], adapter=1)
    driver.run((0, 3))
    assert driver.runner.control("adapters", {"action": "drop", "id": 1})["state"] == "absent"
    driver.generate(0, 4)
    tokens = driver.requests[0].tokens
    greedy = lora.logits_of(merged, tokens)[2:-1].argmax(-1).tolist()
    assert tokens[3:] == greedy
    driver.release(0)
    driver.admit(1, [5, 6, 7], adapter=1)
    assert 0 in driver.run((1, 3)).errors


def test_arguments_that_say_nothing_are_refused(driver):
    """Not with a traceback of another kind."""
    for bad in (
        {"action": "load", "id": True, "root": "x"},
        {"action": "load", "id": -1, "root": "x"},
        {"action": "load", "id": 1, "root": 5},
        {"action": "burn", "id": 1},
        {"id": 1},
        {"action": "state"},
    ):
        with pytest.raises(InputError):
            driver.runner.control("adapters", bad)
    assert driver.runner.control("adapters", {"action": "state", "id": 5})["state"] == "absent"
    nul = {"action": "load", "id": 1, "root": "a\0b"}
    assert driver.runner.control("adapters", nul)["state"] == "failed"


def test_without_limits_there_is_no_such_operation_and_no_feature(tiny, context):
    """The runner declares what it does."""
    runner = TorchRunner()
    info = runner.load(context(tiny("llama").files))
    assert "adapters" not in info.features | info.control_ops
    with pytest.raises(UnsupportedError, match="no operation 'adapters'"):
        runner.control("adapters", {"action": "state", "id": 1})
    runner.close()


def test_a_kernel_named_for_a_whole_layer_must_be_the_one_that_computes_adapters(
    tiny, context, lora, monkeypatch
):
    """Its parts are what adapters change: it adds them by itself, or it is refused."""
    options = {"adapters": lora.limits, "kernels": {"layer_input": "cpu_packed"}}
    files = tiny("llama").files
    runner = TorchRunner()
    assert "layer_input cpu_packed (2" in "\n".join(runner.load(context(files, **options)).notes)
    runner.close()
    another: RunnerContext = context(files, kernel_set="plain", **options)
    with pytest.raises(ConfigError, match="of which adapters change the parts"):
        TorchRunner().load(another)
    monkeypatch.setattr("framework_cpu_paged.packed_calls.updated", lambda call: call)
    with pytest.raises(ConfigError, match="of which adapters change the parts"):
        TorchRunner().load(context(files, **options))


def test_a_model_without_linear_maps_for_adapters_is_refused(tiny, context, monkeypatch):
    """As third parties' may be."""
    monkeypatch.delattr(Decoder, "adapter_sites")
    limits = AdapterLimits(in_step=1, kept=1, rank=8)
    with pytest.raises(UnsupportedError, match="no linear maps that they could change"):
        TorchRunner().load(context(tiny("llama").files, adapters=limits))


def test_adapters_outlast_a_sleep(driver, good, saved, lora, tiny):
    """Also one in which the weights go."""
    lora.ready(driver.runner, 1, saved(good))
    merged = lora.merged(tiny("llama").reference, good)
    for level in (1, 2):
        driver.runner.control("sleep", {"level": level})
        driver.runner.control("wake", {})
        driver.admit(0, [5, 6, 7], adapter=1, generation=level)
        driver.run((0, 3))
        tokens = driver.requests[0].tokens
        assert tokens[3:] == [int(lora.logits_of(merged, [5, 6, 7])[-1].argmax())]
        driver.release(0)
        driver.run()
