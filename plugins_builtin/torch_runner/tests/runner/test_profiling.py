"""What `control("profile", ...)` tells, and that it leaves the model as it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from framework.errors import InputError, IntegrityError, UnsupportedError
from framework_torch.options import TorchOptions

PROMPT = [3, 14, 15, 92, 65]
PART_BY_PART = {"linear": "plain", "logits": "plain", "rms_norm": "plain"}
END = {"action": "end", "rows": 1, "context": 8}


@pytest.fixture
def driver(tiny, drive):
    driver = drive(tiny("qwen3").files, kernels=PART_BY_PART)
    driver.admit(0, PROMPT, generation=1)
    driver.run((0, len(PROMPT)))
    return driver


def quick(monkeypatch):
    """Little is measured, and of torch's own operators two are told: ours are, however short."""
    for name, value in {"_STREAM": 1024, "_SIDE": 16, "MOST": 2}.items():
        monkeypatch.setattr(f"framework_torch.profiling.{name}", value)


def test_operators_kernels_and_attention_are_told(driver, monkeypatch) -> None:
    quick(monkeypatch)
    runner = driver.runner
    sites = runner._loaded.model.operators()
    before = {name: site.forward for name, site in sites.items()}
    plain = driver.generate(0, 3)
    runner.control("profile", {"action": "begin"})
    driver.generate(0, 2)
    found = runner.control("profile", END)
    calls = {name: count for name, count, _ in found["operators"]}
    linear = [site for site in sites.values() if site.op == "linear"]
    assert calls["kernel linear"] == 2 * len(linear)
    assert calls["kernel logits"] == 2
    assert sum(count for name, count in calls.items() if name.startswith("attention ")) > 0
    assert all(seconds >= 0 for *_, seconds in found["operators"])
    assert min(found["machine"].values()) > 0
    assert {name: site.forward for name, site in sites.items()} == before
    assert len(plain) == 3


def test_work_is_that_of_a_step(driver) -> None:
    """Two flops per weight and row, and every weight read once, whatever the rows."""
    from framework_torch.profiling import work

    loaded = driver.runner._loaded
    sites = loaded.model.operators().values()
    maps = [s for s in sites if s.op in ("linear", "logits")]
    numbers = sum(s.sizes["in_features"] * s.sizes["out_features"] for s in maps)
    norms = sum(s.sizes["features"] for s in sites if s.op == "rms_norm")
    one, four = work(loaded, 1, 16), work(loaded, 4, 16)
    assert one["flops"] == 2 * numbers
    assert four["flops"] == 8 * numbers
    assert one["bytes"] == four["bytes"] == 4 * (numbers + norms)  # float32
    assert four["cache_bytes"] == 4 * one["cache_bytes"]


def test_layers_that_are_computed_whole_are_told_as_such(tiny, drive, monkeypatch) -> None:
    quick(monkeypatch)
    driver = drive(tiny("qwen3").files)
    driver.admit(0, PROMPT, generation=1)
    driver.run((0, len(PROMPT)))
    driver.runner.control("profile", {"action": "begin"})
    driver.generate(0, 2)
    found = driver.runner.control("profile", END)
    calls = {name: count for name, count, _ in found["operators"]}
    layers = len(driver.runner._loaded.layers)
    assert calls["kernel layer_input"] == calls["kernel layer_output"] == 2 * layers
    assert "kernel linear" not in calls
    sites = driver.runner._loaded.model.operators().values()
    assert found["work"]["bytes"] == sum(site.num_bytes for site in sites) > 0


def test_begin_and_end_come_in_turn(driver) -> None:
    runner = driver.runner
    with pytest.raises(IntegrityError, match="does not run"):
        runner.control("profile", END)
    with pytest.raises(InputError, match="action"):
        runner.control("profile", {"action": "other"})
    runner.control("profile", {"action": "begin"})
    with pytest.raises(IntegrityError, match="runs already"):
        runner.control("profile", {"action": "begin"})
    runner.close()  # ends what still runs


@pytest.fixture
def traced(tiny, drive, tmp_path):
    """A driver whose runner may write to a folder that is not there yet."""
    options = TorchOptions(profile_folder=tmp_path / "traces")
    driver = drive(tiny("qwen3").files, options=options, kernels=PART_BY_PART)
    driver.admit(0, PROMPT, generation=1)
    driver.run((0, len(PROMPT)))
    return driver


def test_a_trace_is_a_file_of_the_steps_between(traced, tmp_path) -> None:
    runner = traced.runner
    paths = []
    for _ in range(2):
        runner.control("profile", {"action": "begin", "trace": True})
        traced.generate(0, 2)
        found = runner.control("profile", {"action": "end"})
        paths.append(Path(found.pop("trace")))
        assert not found
    assert sorted(paths) == sorted((tmp_path / "traces").iterdir())
    for path in paths:
        names = {event.get("name") for event in json.loads(path.read_text())["traceEvents"]}
        assert {"kernel linear", "kernel logits"} < names
    traced.generate(0, 2)  # as before


def test_a_trace_ends_also_when_the_weights_were_given_back(traced) -> None:
    runner = traced.runner
    runner.control("profile", {"action": "begin", "trace": True})
    runner.control("sleep", {"level": 2})
    assert Path(runner.control("profile", {"action": "end"})["trace"]).exists()
    runner.control("wake", {})


@pytest.mark.parametrize("folder", [None, "file"])
def test_without_a_folder_that_can_be_written_to_none_begins(driver, tmp_path, folder) -> None:
    from framework_torch.profiling import Profiler

    (tmp_path / "file").touch()
    runner = driver.runner
    runner._profiler = Profiler(None if folder is None else tmp_path / folder)
    with pytest.raises(UnsupportedError, match="profile_folder"):
        runner.control("profile", {"action": "begin", "trace": True})
    runner.control("profile", {"action": "begin"})  # nothing was begun


def test_a_trace_that_is_not_written_is_an_error_and_over(traced, tmp_path) -> None:
    runner = traced.runner
    runner.control("profile", {"action": "begin", "trace": True})
    (tmp_path / "traces").rmdir()
    with pytest.raises(UnsupportedError, match="cannot be written"):
        runner.control("profile", {"action": "end"})
    runner.control("profile", {"action": "begin", "trace": True})
    assert "trace" in runner.control("profile", {"action": "end"})
