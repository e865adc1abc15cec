"""What `control("profile", ...)` tells, and that it leaves the model as it was."""

from __future__ import annotations

import pytest

from framework.errors import InputError, IntegrityError

PROMPT = [3, 14, 15, 92, 65]
END = {"action": "end", "rows": 1, "context": 8}


@pytest.fixture
def driver(tiny, drive):
    driver = drive(tiny("qwen3").files)
    driver.admit(0, PROMPT, generation=1)
    driver.run((0, len(PROMPT)))
    return driver


def test_operators_kernels_and_attention_are_told(driver, monkeypatch) -> None:
    monkeypatch.setattr("framework_torch.profiling._STREAM", 1024)
    monkeypatch.setattr("framework_torch.profiling._SIDE", 16)
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
    sites = [s for s in loaded.model.operators().values() if s.op in ("linear", "logits")]
    numbers = sum(s.sizes["in_features"] * s.sizes["out_features"] for s in sites)
    one, four = work(loaded, 1, 16), work(loaded, 4, 16)
    assert one["flops"] == 2 * numbers
    assert four["flops"] == 8 * numbers
    assert one["bytes"] == four["bytes"] == 4 * numbers  # float32
    assert four["cache_bytes"] == 4 * one["cache_bytes"]


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
