"""`framework bench tune`: how it searches, what it writes, and that it leaves no server."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from framework.errors import FrameworkError
from framework.testing.fake_model import MODEL, fake_plugins
from framework_commands.bench import run as bench_run
from framework_commands.bench import target as bench_target
from framework_commands.bench.search import best_of, search_rate, settings_of
from framework_commands.server_process import ServerProcess

ROOT = [f"--plugin={key}={value}" for key, value in fake_plugins().items()]
ECHO = ["--model", MODEL, "--set", "executor=echo"]
SLEEPS = """
import sys, time
print("listening on http://127.0.0.1:9", file=sys.stderr, flush=True)
time.sleep(600)
"""
SMALL = ["--num-prompts", 4, "--input-len", 8, "--output-len", 4]


def queue(capacity, limit):
    """What a server answers that serves `capacity` requests a second, and keeps its objectives
    up to the rate `limit`."""
    asked = []

    def measure(rate):
        asked.append(rate)
        served = min(rate, capacity)
        return {"request_throughput": served, "goodput_fraction": 1.0 if rate <= limit else 0.2}

    measure.asked = asked
    return measure


def test_the_search_closes_in_on_the_highest_rate_that_is_fine():
    measure = queue(capacity=16.0, limit=9.0)
    trials = list(search_rate({"a": 1}, measure, 0.95, 5))
    assert measure.asked == [math.inf, 16, 8, 12, 10, 9]
    assert best_of(trials).rate == 9
    assert best_of(trials).sustained == 9


def test_what_holds_with_everything_at_once_needs_no_search():
    measure = queue(capacity=16.0, limit=math.inf)
    (trial,) = search_rate({}, measure, 0.95, 5)
    assert (trial.fine, trial.sustained) == (True, 16.0)


def test_a_server_that_keeps_up_with_all_that_it_can_is_asked_no_more():
    measure = queue(capacity=16.0, limit=16.0)
    trials = list(search_rate({}, measure, 0.95, 5))
    assert measure.asked == [math.inf, 16.0]
    assert best_of(trials).sustained == 16.0


def test_where_nothing_is_fine_there_is_no_best():
    trials = list(search_rate({}, queue(capacity=16.0, limit=0.0), 0.95, 3))
    assert [trial.rate for trial in trials] == [math.inf, 16, 8, 4]
    assert best_of(trials) is None
    dead = list(search_rate({}, queue(capacity=0.0, limit=0.0), 0.95, 3))
    assert len(dead) == 1


def test_every_combination_is_a_setting():
    assert settings_of({"a": [1, 2], "b": [3]}) == [{"a": 1, "b": 3}, {"a": 2, "b": 3}]


@pytest.fixture
def pids(monkeypatch):
    """Processes of the servers that are started."""
    seen = []
    start = ServerProcess.start

    def spy(self, seconds):
        try:
            return start(self, seconds)
        finally:
            seen.append(self.pid)

    monkeypatch.setattr(ServerProcess, "start", spy)
    return seen


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_best_settings_are_written_for_serve(run, tmp_path, pids):
    config, output, trials = (tmp_path / name for name in ("e.yaml", "tuned.yaml", "t.json"))
    config.write_text("scheduler: {max_num_seqs: 3}\nmodel: {max_model_len: 100}\n")
    words = ["--max-num-seqs", "5", "--max-num-batched-tokens", "64", "--config", config]
    words += ["--goodput", "e2el:600000", "ttft:600000", "-o", output, "--json", trials]
    words += ["--set", "token=s3cret"]  # a secret is no setting to hand on
    code, out, err = run(*ROOT, "bench", "tune", *ECHO, *SMALL, *words)
    assert code == 0, err
    assert "max_num_seqs=5, max_num_batched_tokens=64" in out
    assert yaml.safe_load(output.read_text()) == {
        "scheduler": {"max_num_seqs": 5, "max_num_batched_tokens": 64},
        "model": {"max_model_len": 100, "model": MODEL},
        "execution": {"executor": "echo"},
    }
    (trial,) = json.loads(trials.read_text())
    assert (trial["request_rate"], trial["fine"], trial["result"]["completed"]) == ("inf", True, 4)
    assert run(*ROOT, "generate", "hi", "--config", output)[:2] == (0, "hi\n")
    assert len(pids) == 1
    assert not alive(pids[0])


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_a_signal_leaves_no_server(run, tmp_path, pids, monkeypatch):
    """Of a server that takes its time, as they do."""
    before = signal.getsignal(signal.SIGTERM)
    made = ServerProcess.__init__

    def slow(self, *arguments, **more):
        made(self, *arguments, **more)
        self._command = [sys.executable, "-c", SLEEPS]

    def terminated(*arguments):
        assert alive(pids[0])
        os.kill(os.getpid(), signal.SIGTERM)
        yield

    monkeypatch.setattr(ServerProcess, "__init__", slow)
    monkeypatch.setattr(bench_target, "find_target", lambda *arguments, **more: None)
    monkeypatch.setattr(bench_run, "run_rates", terminated)
    words = ["--goodput", "e2el:1", "-o", tmp_path / "t.yaml"]
    code, _, _ = run(*ROOT, "bench", "tune", *ECHO, *SMALL, *words)
    assert code == 128 + signal.SIGTERM
    assert len(pids) == 1
    assert not alive(pids[0])
    assert signal.getsignal(signal.SIGTERM) is before
    assert not (tmp_path / "t.yaml").exists()


PARENT = """
import os
from framework.testing.fake_model import MODEL, fake_plugins
from framework_commands.server_process import ServerProcess

words = [f"--plugin={key}={value}" for key, value in fake_plugins().items()]
words += ["serve", "--model", MODEL, "--set", "executor=echo", "--port", "0"]
server = ServerProcess(words, bare=True)
server.start(100)
with open(f"/proc/{server.pid}/task/{server.pid}/children") as file:
    print(server.pid, file.read(), flush=True)
os.kill(os.getpid(), 9)
"""


def works(pid):
    """Whether it runs; one that has ended may stay until somebody asks how."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="reads /proc")
def test_a_server_and_its_core_end_with_a_parent_that_is_killed():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run(
        [sys.executable, "-c", PARENT],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        timeout=120,
    )
    started = [int(word) for word in found.stdout.split()]
    assert (found.returncode, len(started)) == (-signal.SIGKILL, 2)
    end = time.monotonic() + 60
    while any(works(pid) for pid in started):
        assert time.monotonic() < end, "they outlived their parent"
        time.sleep(0.05)


def test_a_server_that_does_not_start_is_told_with_its_log(pids):
    with (
        pytest.raises(FrameworkError, match="max_num_seq") as told,
        ServerProcess(["serve", "--set", "max_num_seq=3"], bare=True) as server,
    ):
        server.start(100)
    assert "did not start" in str(told.value)
    assert not alive(pids[0])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "there is no objective"),
        (["--goodput", "itl:3"], "--goodput is invalid"),
        (["--goodput", "ttft:3", "--max-num-seqs", "0"], "--max-num-seqs is invalid"),
        (["--goodput", "ttft:3", "--max-num-seqs", "4,4"], "--max-num-seqs is invalid"),
        (["--goodput", "ttft:3", "--set", "max_num_seq=3"], "did you mean 'max_num_seqs'"),
        (["--goodput", "ttft:3", "-o", "missing/t.yaml"], "cannot be written"),
        (["--goodput", "ttft:3", "--config", "missing.yaml"], "missing.yaml"),
        (["--goodput", "ttft:3", "--max-num-seqs", ",".join(map(str, range(1, 40)))], "too many"),
    ],
)
def test_a_wrong_flag_is_told_before_a_server_is_started(run, words, said, monkeypatch):
    monkeypatch.setattr(ServerProcess, "start", lambda *_: pytest.fail("started"))
    code, out, err = run(*ROOT, "bench", "tune", *ECHO, *words)
    assert (code, out) == (1, "")
    assert said in err
