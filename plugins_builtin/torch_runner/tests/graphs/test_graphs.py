"""Graphs on a processor that records: the tokens of steps that are replayed are those of others."""

from __future__ import annotations

import pytest
import torch

from framework.contracts.sampling import SamplingParams
from framework.errors import ConfigError, PluginError, UnsupportedError
from framework.plugins.registry import PluginRegistry
from framework.testing.conformance import Layer, Status, check
from framework_torch.binding import make_forward
from framework_torch.graphs.modes import Mode
from framework_torch.options import TorchOptions
from framework_torch.prepare import prepare
from plugins_builtin.torch_runner.tests.graphs import recorded

IN_PROCESS = tuple(layer for layer in Layer if layer is not Layer.IMPORT)
PLACE = recorded.__name__
PROMPTS = ([5, 17, 80, 3, 41, 9, 66, 2, 11], [7, 7, 3], [1], [60, 2, 95, 4, 4, 8])
PLUGINS = {
    "platform:recorded": f"{PLACE}:RecordingPlatform",
    "attention_backend:gather": f"{PLACE}:GatherBackend",
    "attention_backend:decode": f"{PLACE}:DecodeBackend",
    "attention_backend:no_graphs": f"{PLACE}:NoGraphs",
}


@pytest.fixture(scope="module")
def registry():
    return PluginRegistry(ad_hoc=PLUGINS)


@pytest.fixture
def run(drive, tiny):
    """run(mode, backend) -> (driver, tokens of each prompt after a story of mixed steps)."""

    def make(mode, backend="gather", name="llama", platform="recorded", **more):
        options = TorchOptions(graph_mode=mode, capture_sizes=more.pop("sizes", (1, 2, 4, 8, 16)))
        choices = {"platform": platform, "attention_backend": backend}
        changes = {"max_slots": 4, "max_step_tokens": 16, "kernel_set": "plain", **more}
        files = tiny(name).files
        driver = drive(files, 4, options=options, choices=choices, **changes)
        driver.admit(0, PROMPTS[0], SamplingParams(temperature=0.0, max_tokens=64))
        driver.admit(1, PROMPTS[1])
        driver.run((0, 4), (1, 3))
        driver.run((0, 5), (1, 1))
        driver.admit(2, PROMPTS[2])
        driver.run((0, 1), (1, 1), (2, 1))
        driver.admit(3, PROMPTS[3])
        driver.run((0, 1), (2, 1), (3, 6))
        for _ in range(6):
            driver.run((0, 1), (1, 1), (2, 1), (3, 1))
        driver.release(1)
        driver.run((3, 1), (0, 1))
        driver.run((3, 1))
        return driver, [driver.requests[slot].tokens for slot in (0, 2, 3)]

    return make


def forward_of(driver):
    return driver.runner._computer.forward


@pytest.mark.parametrize(
    ("mode", "used"),
    [
        ("none", {Mode.NONE}),
        ("piecewise", {Mode.PIECEWISE}),
        ("full", {Mode.FULL}),
        ("full_decode_only", {Mode.NONE, Mode.FULL}),
        ("full_and_piecewise", {Mode.PIECEWISE, Mode.FULL}),
    ],
)
def test_each_mode_gives_the_tokens_of_none(run, mode, used):
    _, plain = run("none", "sdpa", platform="cpu")
    driver, tokens = run(mode)
    assert tokens == plain
    if mode != "none":
        found = {each for each, count in forward_of(driver).replayed.items() if count}
        assert found == used


@pytest.mark.parametrize("name", ["qwen3", "llama"])
def test_a_graph_is_used_again_for_every_step_of_its_size(run, name):
    driver, _ = run("full_and_piecewise", name=name)
    forward = forward_of(driver)
    assert forward.replayed[Mode.FULL] >= 9
    assert sum(graph.replays for graph in recorded.RecordingPlatform.made[-1].graphs) > 9


def test_parts_are_cut_at_attention(run):
    driver, _ = run("piecewise", sizes=(4, 8), name="llama")
    layers = len(driver.runner._info.layers)
    assert len(recorded.RecordingPlatform.made[-1].graphs) == 2 * (layers + 1)


@pytest.mark.parametrize(
    ("backend", "mode", "used"),
    [
        ("no_graphs", "piecewise", {Mode.PIECEWISE}),
        ("decode", "full_and_piecewise", {Mode.PIECEWISE, Mode.FULL}),
    ],
)
def test_the_level_decides_and_attention_limits_it(run, backend, mode, used):
    _, plain = run("none", "sdpa", platform="cpu")
    driver, tokens = run("auto", backend, kernel_set="best")
    assert tokens == plain
    assert {each for each, count in forward_of(driver).replayed.items() if count} == used
    notes = " ".join(driver.runner._info.notes)
    assert f"graphs: {mode}" in notes
    assert ("not full_and_piecewise" in notes) == (backend == "no_graphs")


def test_what_cannot_be_had_is_refused(run):
    with pytest.raises(ConfigError, match="a platform that records none"):
        run("piecewise", platform="cpu", backend="sdpa")
    with pytest.raises(ConfigError, match="enforce_eager"):
        run("piecewise", enforce_eager=True)
    with pytest.raises(ConfigError, match="attention that can be part of a graph"):
        run("full", "decode")
    with pytest.raises(ConfigError, match="as long as the shortest graph") as caught:
        run("full", sizes=(32, 64))
    assert "16" in caught.value.expected


def test_sizes_beyond_a_step_are_left_out(run):
    driver, _ = run("full_and_piecewise", sizes=(8, 1024))
    assert forward_of(driver).replayed[Mode.FULL]
    assert "of up to 8 tokens; sizes: 1" in " ".join(driver.runner._info.notes)


def test_windows_that_differ_are_groups_with_tables_of_their_own(run):
    _, plain = run("none", "sdpa", name="gemma3", platform="cpu")
    driver, tokens = run("piecewise", "sdpa", name="gemma3")
    assert tokens == plain
    assert forward_of(driver).replayed[Mode.PIECEWISE] > 5


def test_a_sleeper_captures_anew(run):
    driver, _ = run("full_and_piecewise")
    before = len(recorded.RecordingPlatform.made)
    for slot in list(driver.requests):
        driver.release(slot)
    driver.runner.control("sleep", {"level": 1})
    driver.runner.control("wake", {})
    assert len(recorded.RecordingPlatform.made) == before
    forward = forward_of(driver)
    driver.admit(0, PROMPTS[0], generation=9)
    driver.run((0, 9))
    driver.run((0, 1))
    assert forward.replayed[Mode.FULL] == 1
    plain, _ = run("none", "sdpa", platform="cpu")
    assert driver.requests[0].tokens == plain.requests[0].tokens[:11]


def test_a_model_that_reads_back_while_it_is_recorded_is_told_with_the_mend(
    tiny, drive, monkeypatch
):
    from framework_torch.graphs import capture

    right = capture.forward

    def reads(model, hidden, positions, context, taps):
        hidden.sum().item()
        return right(model, hidden, positions, context, taps)

    monkeypatch.setattr(capture, "forward", reads)
    with pytest.raises(UnsupportedError, match="cannot be captured") as caught:
        drive(
            tiny("llama").files,
            4,
            options=TorchOptions(graph_mode="piecewise", capture_sizes=(4,)),
            choices={"platform": "recorded", "attention_backend": "gather"},
            kernel_set="plain",
        )
    assert "graph_mode=none" in caught.value.mend
    assert recorded.RecordingPlatform.made[-1]._mode is None


def test_the_backend_of_these_tests_keeps_the_clauses_on_graphs():
    report = check(recorded.GatherBackend, only=("ATTN-030", "ATTN-116"), layers=IN_PROCESS)
    assert report.conformant, report.text()
    assert report.counts()[Status.PASSED] >= 2


def test_hidden_states_on_the_way_come_out_of_a_graph_too(run):
    """Those that a proposer wants, of layer 0."""
    seen = {}
    for mode, place, backend in (
        ("none", "cpu", "sdpa"),
        ("piecewise", "recorded", "gather"),
        ("full", "recorded", "gather"),
    ):
        driver, _ = run(mode, backend, platform=place)
        computer = driver.runner._computer
        own = make_forward(driver.runner._loaded, computer.cache, computer.batch, (0,))
        plan = driver.plan((3, 1), (0, 1))
        inputs, errors = prepare(plan, computer.batch)
        assert not errors
        with torch.inference_mode():
            own.prepare(inputs)
            embedded = computer.model.embed(torch.from_numpy(inputs.tokens))
            hidden, taps = own.run(inputs, embedded)
            seen[mode] = [hidden.clone(), *(each.clone() for each in taps)]
    for mode in ("piecewise", "full"):
        assert len(seen[mode]) == 2
        for found, right in zip(seen[mode], seen["none"], strict=True):
            torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-4)
        assert not torch.equal(*seen[mode])


def test_a_backend_that_cannot_renew_is_named(run, monkeypatch):
    monkeypatch.delattr(recorded.GatherBuilder, "renew")
    with pytest.raises(PluginError, match="cannot renew its metadata") as caught:
        run("full")
    assert "gather" in str(caught.value)


def test_steps_with_adapters_are_computed_without_graphs(run):
    driver, _ = run("full_and_piecewise")
    forward = forward_of(driver)
    before = dict(forward.replayed)
    forward._with_adapters = lambda inputs: 0 in inputs.slots
    driver.run((3, 1), (0, 1))
    driver.run((3, 1))
    assert forward.replayed[Mode.NONE] == before[Mode.NONE] + 1
    assert forward.replayed[Mode.FULL] == before[Mode.FULL] + 1
