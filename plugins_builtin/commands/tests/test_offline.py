"""`framework bench throughput` and `latency`, over the echo model."""

from __future__ import annotations

import json

import pytest

from framework import LLM
from framework.errors import FrameworkError
from framework.testing.fake_model import MODEL, fake_plugins
from framework_commands.bench.asks import Random
from framework_commands.bench.offline import iterations, spread

ROOT = [f"--plugin={key}={value}" for key, value in fake_plugins().items()]
ECHO = ["--model", MODEL, "--set", "executor=echo"]


def test_throughput_counts_what_was_generated(run, tmp_path):
    file = tmp_path / "r.json"
    words = ["--num-prompts", 6, "--input-len", 20, "--output-len", 30, "--num-iters", 2]
    code, out, _ = run(*ROOT, "bench", "throughput", *ECHO, *words, "--json", file)
    assert code == 0
    found = json.loads(file.read_text())
    assert found["num_requests"] == 12
    assert found["total_num_tokens"] == 12 * 50  # past the end of sequence
    assert [one["input_tokens"] for one in found["iterations"]] == [120, 120]
    seconds = sum(one["elapsed_time"] for one in found["iterations"])
    assert found["elapsed_time"] == pytest.approx(seconds)
    assert found["output_tokens_per_second"] == pytest.approx(360 / seconds)
    assert "12 requests" in out
    run(*ROOT, "bench", "throughput", *ECHO, *words, "--json", file, "--respect-eos")
    found = json.loads(file.read_text())
    assert found["iterations"][0]["output_tokens"] == 6 * 21


def test_latency_times_each_batch(run, tmp_path):
    file = tmp_path / "r.json"
    words = ["--batch-size", 3, "--input-len", 8, "--output-len", 4, "--num-iters", 5]
    words += ["--num-iters-warmup", 1, "--metric-percentiles", "0.5,50"]
    code, out, _ = run(*ROOT, "bench", "latency", *ECHO, *words, "--json", file)
    assert code == 0
    found = json.loads(file.read_text())
    assert len(found["latencies"]) == 5
    assert found["avg_latency"] == pytest.approx(sum(found["latencies"]) / 5)
    assert found["percentiles"] == spread(found["latencies"], [0.5, 50])
    assert "5 batches of 3" in out


def test_warm_ups_are_not_timed_and_prompts_differ(monkeypatch):
    asked, now = [], iter(range(100))
    generate = LLM.generate

    def spy(self, prompts, params, **more):
        asked.append([tuple(prompt) for prompt in prompts])
        return generate(self, prompts, params, **more)

    monkeypatch.setattr(LLM, "generate", spy)
    data = Random(input=12, output=3, spread=0.0, prefix=0)
    with LLM(MODEL, plugins=fake_plugins(), executor="echo") as llm:
        found = list(
            iterations(
                llm,
                data,
                4,
                warmups=8,
                count=2,
                seed=1,
                ignore_eos=True,
                clock=lambda: float(next(now)),
            )
        )
    assert [len(prompts) for prompts in asked] == [4, 4, 4, 4]
    assert len({prompt for prompts in asked for prompt in prompts}) == 16
    assert [one["elapsed_time"] for one in found] == [1.0, 1.0]
    assert [one["output_tokens"] for one in found] == [12, 12]


def test_a_request_that_fails_is_no_fast_request(monkeypatch):
    from framework.testing.fake_model import EchoExecutor

    init = EchoExecutor.__init__

    def fail_first(self, options=None):
        init(self, options)
        self.fail_rows = {(1, 0): "the row is bad"}

    monkeypatch.setattr(EchoExecutor, "__init__", fail_first)
    data = Random(input=4, output=3, spread=0.0, prefix=0)
    with (
        LLM(MODEL, plugins=fake_plugins(), executor="echo") as llm,
        pytest.raises(FrameworkError, match="1 of 2 requests failed"),
    ):
        list(iterations(llm, data, 2, warmups=0, count=1, seed=1, ignore_eos=True))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["latency", "--json", "missing/x.json"], "cannot be written"),
        (["latency", "--metric-percentiles", "101"], "--metric-percentiles is invalid"),
        (["throughput", "--dataset-name", "sharegpt"], "needs --dataset-path"),
        (["throughput", "--input-len", "300", "--num-prompts", "1"], "too long"),
    ],
)
def test_a_wrong_flag_is_one_clear_error(run, words, said):
    code, out, err = run(*ROOT, "bench", *words, *ECHO)
    assert (code, out) == (1, "")
    assert said in err
    assert "Traceback" not in err
