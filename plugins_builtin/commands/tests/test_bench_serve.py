"""`framework bench serve`: what is measured, what is counted, and what is asked."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest

from framework_commands.bench.drive import Driven, arrivals, drive
from framework_commands.bench.figures import figures, is_good, parse_goodput
from framework_commands.bench.measure import Answer, Measured


def chunk(text="", ending=None, **more):
    return {"choices": [{"index": 0, "text": text, "finish_reason": ending}], **more}


def answered(*timed):
    """What is made of events at given times, of a request that was sent at 10."""
    answer, made = Answer(), Measured(started=10.0)
    for when, event in timed:
        answer.take(event, when)
    answer.into(made)
    return made


# Times


def test_times_are_those_of_chunks_that_carry_a_part_of_the_answer():
    made = answered(
        (10.1, {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}),
        (10.5, {"choices": [{"index": 0, "delta": {"content": "a"}}]}),
        (10.7, {"choices": [{"index": 0, "delta": {"reasoning_content": "b"}}]}),
        (11.5, {"choices": [{"index": 0, "delta": {"content": "cd"}}]}),
        (11.9, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
        (12.9, {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5}}),
    )
    assert made.failure is None
    assert (made.prompt, made.output, made.estimated, made.text) == (7, 5, False, "abcd")
    assert made.ttft == pytest.approx(0.5)
    assert made.itl == pytest.approx([0.2, 0.8])
    assert made.latency == pytest.approx(1.5)
    assert made.tpot == pytest.approx(1.0 / 4)  # four tokens behind the first


def test_without_usage_chunks_are_counted_and_the_result_says_so():
    made = answered((10.5, chunk("a")), (10.6, chunk("b")), (10.7, chunk("", "stop")))
    assert (made.output, made.estimated) == (2, True)
    assert figures(Driven([made], 1.0, 1, 0.0), {}, [50])["output_tokens_estimated"]


def test_an_answer_of_one_token_has_no_time_per_token():
    made = answered((10.5, chunk("a", "length", usage={"completion_tokens": 1})))
    assert made.tpot is None
    found = figures(Driven([made], 1.0, 1, 0.0), {}, [99])
    assert (found["mean_tpot_ms"], found["p99_itl_ms"]) == (None, None)
    assert found["mean_ttft_ms"] == found["p99_e2el_ms"] == pytest.approx(500)
    assert is_good(made, {"tpot": 1.0})


def test_an_end_without_a_text_is_when_its_token_came():
    made = answered((10.5, chunk("", "stop", usage={"completion_tokens": 1})))
    assert (made.failure, made.output) == (None, 1)
    assert made.ttft == made.latency == pytest.approx(0.5)


def test_an_answer_without_a_token_is_a_failure_and_no_fast_request():
    made = answered((10.1, chunk("", "stop", usage={"completion_tokens": 0})))
    assert made.failure == "no tokens"
    assert not is_good(made, {"ttft": 1e9})


# Figures


def one(ttft, latency, output=3, failure=None):
    return Measured(
        started=0.0,
        ttft=ttft,
        latency=latency,
        itl=[0.01],
        prompt=5,
        output=output,
        failure=failure,
    )


def test_figures_leave_failures_out_and_count_them_by_kind():
    good, slow = one(0.1, 0.3), one(0.5, 0.9)
    bad = [one(0.0, 0.0, failure="status 503"), one(0.0, 0.0, failure="broken stream")]
    found = figures(Driven([good, *bad, slow, bad[0]], 2.0, 3, 0.0), {"ttft": 200}, [50])
    assert (found["completed"], found["failed"]) == (2, 3)
    assert found["failures"] == {"status 503": 2, "broken stream": 1}
    assert found["request_throughput"] == 1.0
    assert (found["request_goodput"], found["goodput_fraction"]) == (0.5, 0.2)
    assert (found["total_input_tokens"], found["total_output_tokens"]) == (10, 6)
    assert found["mean_ttft_ms"] == pytest.approx(300)
    assert found["mean_tpot_ms"] == pytest.approx((100 + 200) / 2)
    assert found["max_concurrent_requests"] == 3


def test_of_failures_alone_there_is_no_time():
    found = figures(Driven([one(0, 0, failure="timeout")], 1.0, 1, 0.0), {"ttft": 1}, [99])
    assert (found["completed"], found["p99_ttft_ms"], found["request_goodput"]) == (0, None, 0)
    json.dumps(found, allow_nan=False)


def test_objectives_are_read_apart_by_blanks_or_commas():
    assert parse_goodput(["ttft:200", "tpot:50,e2el:3000"]) == {
        "ttft": 200.0,
        "tpot": 50.0,
        "e2el": 3000.0,
    }


# When requests are sent


def test_arrivals_have_the_rate_and_the_burstiness():
    rng = np.random.default_rng(0)
    for burstiness in (0.25, 1.0, 4.0):
        gaps = np.diff(arrivals(20.0, burstiness, 20_000, rng))
        assert gaps.mean() == pytest.approx(1 / 20, rel=0.05)
        assert gaps.std() / gaps.mean() == pytest.approx(burstiness**-0.5, rel=0.05)
    assert not arrivals(float("inf"), 1.0, 5, rng).any()
    assert arrivals(5.0, 1.0, 3, rng)[0] == 0


class Time:
    """A clock that only sleepers move."""

    def __init__(self):
        self.now = 100.0

    def clock(self):
        return self.now

    async def sleep(self, seconds):
        await asyncio.sleep(0)  # whoever was sent runs first
        self.now += seconds


def test_requests_are_sent_when_they_are_due():
    time, sent = Time(), []

    async def send(index):
        sent.append((index, time.now))
        return one(0.1, 0.2)

    driven = asyncio.run(drive(send, [0, 1, 1, 4], None, sleep=time.sleep, clock=time.clock))
    assert sent == [(0, 100.0), (1, 101.0), (2, 101.0), (3, 104.0)]
    assert len(driven.results) == 4
    assert driven.seconds == pytest.approx(4.0)


def test_no_more_requests_are_under_way_than_allowed():
    under_way, most = 0, 0

    async def send(index):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        under_way -= 1
        return one(0.1, 0.2)

    driven = asyncio.run(drive(send, [0.0] * 20, 3))
    assert most == driven.peak == 3
    assert len(driven.results) == 20
    assert asyncio.run(drive(send, [0.0] * 20, None)).peak == 20


# The whole command


def test_a_server_is_measured_at_every_rate(run, url, tmp_path):
    plot = tmp_path / "plot.svg"
    words = ["--num-prompts", 6, "--input-len", 12, "--output-len", 5, "--request-rate", "200,inf"]
    words += ["--goodput", "ttft:100000", "tpot:100000", "--metric-percentiles", "25,99.5"]
    words += ["--save-detailed", "--result-dir", tmp_path, "--result-filename", "r.json"]
    code, out, err = run("bench", "serve", "--url", url, *words, "--plot", plot)
    assert code == 0, err
    runs = json.loads((tmp_path / "r.json").read_text())["runs"]
    assert [one["request_rate"] for one in runs] == [200.0, "inf"]
    for one in runs:
        assert (one["completed"], one["failed"], one["goodput_fraction"]) == (6, 0, 1.0)
        assert one["input_lens"] == [12] * 6
        assert one["output_lens"] == [5] * 6
        assert all(len(itl) == 4 for itl in one["itls"])
        assert one["p25_ttft_ms"] <= one["p99.5_ttft_ms"] <= one["p99.5_e2el_ms"]
        parts = [ttft + sum(itl) for ttft, itl in zip(one["ttfts"], one["itls"], strict=True)]
        assert parts == pytest.approx(one["e2els"])
    assert out.count("request rate") == 2
    assert "p99.5" in out
    assert "<svg" in plot.read_text()


def test_a_chat_is_measured_by_its_words(run, url, tmp_path):
    words = ["--endpoint", "chat", "--num-prompts", 2, "--input-len", 3, "--output-len", 4]
    words += ["--result-dir", tmp_path, "--save-result"]
    code, _, err = run("bench", "serve", "--url", url, *words)
    assert code == 0, err
    (file,) = tmp_path.iterdir()
    assert file.name.startswith("openai-infqps-model-")
    assert json.loads(file.read_text())["total_output_tokens"] == 8


def test_failures_of_a_server_are_counted_by_kind(run, fake, tmp_path):
    count = iter(range(100))

    def answer(handler, body):
        usage = {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}
        match next(count) % 5:
            case 0:
                handler.events(chunk("a"), chunk("b", "stop"), usage)
            case 1:
                handler.reply(503, {"error": {"message": "busy"}})
            case 2:
                handler.events(chunk("a"), done=False, broken=True)
            case 3:
                handler.events(chunk("a"), {"error": {"message": "the engine died"}})
            case 4:  # nothing says that this is all
                handler.events(chunk("a"), usage, done=False)

    url = fake({"/v1/completions": answer})
    words = ["--num-prompts", 9, "--input-len", 3, "--output-len", 2, "--max-concurrency", 1]
    words += ["--result-dir", tmp_path, "--result-filename", "r.json"]
    code, out, err = run("bench", "serve", "--url", url, *words)
    assert code == 0
    found = json.loads((tmp_path / "r.json").read_text())
    assert found["failures"] == {"broken stream": 4, "status 503": 2, "error in stream": 2}
    assert (found["completed"], found["total_output_tokens"]) == (1, 2)
    assert "status 503" in out
    assert "no /tokenize" in err


def test_a_server_that_refuses_all_is_one_message(run, fake):
    url = fake({"/v1/completions": lambda h, b: h.reply(401, {"error": {"message": "no"}})})
    code, out, err = run("bench", "serve", "--url", url, "--num-prompts", 2)
    assert (code, out) == (1, "")
    assert "does not answer a first request" in err
    assert "API key" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--request-rate", "0"], "--request-rate is invalid"),
        (["--request-rate", "1,1"], "--request-rate is invalid"),
        (["--goodput", "ttf:3"], "did you mean 'ttft'"),
        (["--goodput", "ttft:soon"], "--goodput is invalid"),
        (["tpot:50"], "belongs to no flag"),
        (["--metric-percentiles", "50,100"], "--metric-percentiles is invalid"),
        (["--percentile-metrics", "itlx"], "did you mean 'itl'"),
        (["--dataset-name", "custom"], "needs --dataset-path"),
        (["--dataset-path", "x"], "takes no --dataset-path"),
        (["--extra-body", "[]"], "--extra-body is no object"),
        (["--plot", "x.xyz"], "known ending"),
        (["--result-dir", "missing/folder", "--save-result"], "cannot be written"),
    ],
)
def test_a_wrong_flag_is_one_clear_error(run, words, said):
    code, out, err = run("bench", "serve", "--url", "http://127.0.0.1:9", *words)
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert said in err
