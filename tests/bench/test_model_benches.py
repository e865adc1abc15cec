"""`framework bench case | step | start | compare`, on a model without torch and made-up peers."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from framework.bench import goals, peer_engines
from framework.bench.cases import measure
from framework.bench.compare import Samples, Task, compare, peers_of, tasks
from framework.bench.compare_report import as_json, goal_table, table
from framework.bench.goals import Goal
from framework.bench.peers import PROGRAM, Peers, run_peers
from framework.bench.start import measure as measure_start
from framework.bench.step import OPTIONS, PHASES
from framework.bench.step import measure as measure_step
from framework.bench.workload import Case
from framework.engine.llm import LLM
from framework.engine.llm_options import resolve_options
from framework.errors import ConfigError
from framework.testing.fake_model import MODEL, fake_plugins

ECHO = {"model": MODEL, "plugins": fake_plugins(), "executor": "echo"}


def program(tmp_path, text):
    """A peers' program that runs `text`."""
    file = tmp_path / "peers.py"
    file.write_text("import json, sys\n" + text)
    return (sys.executable, str(file))


# The workload


def test_ours_and_the_peers_get_the_same_prompts():
    assert Case.parse("3x5+2").prompts(50_000) == peer_engines.prompts(3, 5)


def test_prompts_share_their_prefix_and_nothing_else():
    first, second = Case.parse("2x12+1", shared=8).prompts(50_000)
    assert first[:8] == second[:8]
    assert first[8:] != second[8:]
    assert len(first) == len(second) == 12


def test_ids_of_a_small_vocabulary_are_in_it():
    assert all(0 <= id_ < 300 for id_ in Case.parse("1x50+1").prompts(300)[0])


@pytest.mark.parametrize("text", ["", "16", "0x1+1", "1x0+1", "1x1+0", "1x1", "-1x1+1", "ax1+1"])
def test_a_wrong_case_is_an_error(text):
    with pytest.raises(ConfigError, match="case is invalid"):
        Case.parse(text)


def test_a_prefix_is_shorter_than_the_prompt():
    with pytest.raises(ConfigError, match="shared prefix is too long"):
        Case.parse("2x8+1", shared=8)


# In this process


def test_a_case_is_measured():
    with LLM(**ECHO) as llm:
        found = measure(llm, Case.parse("3x8+4"), rounds=1)
        one = measure(llm, Case.parse("2x8+1"), rounds=1)
    assert found.case == "3x8+4"
    assert found.output_tokens_per_s == pytest.approx(12 / found.seconds)
    assert found.ttft_s > 0
    assert one.decode_tokens_per_s is None


def test_no_round_finds_what_another_one_left_in_the_cache():
    """Rounds of equal prompts would hit; a warm one hits its shared part, which is asked for."""
    with LLM(**ECHO) as llm:
        measure(llm, Case.parse("2x64+2"), rounds=3)
        assert llm.stats.prefix_hits == 0
        measure(llm, Case.parse("2x64+2", shared=48, warm=True), rounds=1)
        assert llm.stats.prefix_hits >= 2 * 48


@pytest.mark.long
@pytest.mark.parametrize(("caching", "computed"), [(True, 8 * (1016 - 992)), (False, 8 * 1016)])
def test_of_a_long_prefix_that_eight_share_nothing_is_computed_again(caching, computed):
    """A goal of `compare` is five times the speed: here what that comes from.  992: whole pages."""
    with LLM("demo", max_model_len=1040, enable_prefix_caching=caching) as llm:
        measure(llm, Case.parse("8x1016+8", shared=1000, warm=caching), rounds=1)
        assert 8 * 1016 - llm.stats.prefix_hits == computed


def test_phases_add_up_to_the_step():
    options = {"plugin_options": {"executor.probed.wraps": "echo"}, **OPTIONS}
    options["plugins"] = {**fake_plugins(), **OPTIONS["plugins"]}
    figures, profile = measure_step(resolve_options(MODEL, dict(options)), 3, 8, 5)
    assert (profile, figures.requests, figures.steps) == (None, 3, 5)
    assert tuple(figures.phases) == PHASES
    assert min(figures.phases.values()) >= 0
    assert figures.overhead == 1.0  # the echo has no arithmetic


def test_requests_that_do_not_fit_side_by_side_are_an_error():
    options = {"plugin_options": {"executor.probed.wraps": "echo"}, **OPTIONS, "max_num_seqs": 2}
    options["plugins"] = {**fake_plugins(), **OPTIONS["plugins"]}
    with pytest.raises(ConfigError, match="cannot decode side by side"):
        measure_step(resolve_options(MODEL, dict(options)), 3, 8, 2)


def test_a_start_is_measured_in_a_process_of_its_own():
    found = measure_start(ECHO)
    assert found["seconds"] > 0
    assert found["peak_mib"] > 10
    assert found["modules"] > 100
    assert found["heavy"] == []
    named = {"plugins", "model files", "tokenizer", "weights", "engine core", "else"}
    assert found["phases"].keys() == named
    assert min(found["phases"].values()) >= 0
    assert sum(found["phases"].values()) == pytest.approx(found["seconds"])


def test_a_start_that_fails_says_why():
    with pytest.raises(ConfigError, match="did not come to its first token") as caught:
        measure_start({**ECHO, "model": "nowhere://"})
    assert "nowhere" in str(caught.value)


# Peers


def test_what_peers_print_is_read(tmp_path):
    text = """
print("noise"); print("{}"); print("[]"); print(json.dumps({"peer": "broken"}))
row = {"peer": "vllm-cpu-fp32", "seconds": 2.0, "output_len": int(sys.argv[4])}
print(json.dumps({**row, "output_tokens_per_s": 32.0, "note": "x"}))
print(json.dumps({**row, "peer": "llama.cpp-F16", "decode_tokens_per_s": 9}))
"""
    found = run_peers(program(tmp_path, text), tmp_path, ("1", "2", "3")).metrics
    assert set(found) == {goals.VLLM, goals.F16}
    assert found[goals.VLLM]["output_tokens_per_s"] == 32.0
    assert found[goals.F16]["decode_tokens_per_s"] == 9
    assert "ttft_s" not in found[goals.F16]
    one = run_peers(program(tmp_path, text), tmp_path, ("1", "2", "1")).metrics
    assert one[goals.F16]["ttft_s"] == 2.0  # with one token all of it is the time to the first


def test_starts_are_read_from_lines_of_words(tmp_path):
    text = "print('import 9.2'); print('hf first token s 6.5'); print('vllm first token s 16.5')"
    found = run_peers(program(tmp_path, text), tmp_path, ("start",)).metrics
    assert found == {goals.HF: {"ttft_s": 6.5}, goals.VLLM: {"ttft_s": 16.5}}


@pytest.mark.parametrize(
    ("text", "words"),
    [("raise SystemExit('broken')", "broken"), ("print('{}')", "printed no figures")],
)
def test_peers_that_fail_are_an_error(tmp_path, text, words):
    with pytest.raises(ConfigError, match="the peers' program") as caught:
        run_peers(program(tmp_path, text), tmp_path, ("start",))
    assert words in str(caught.value)


def test_a_folder_that_is_missing_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="peers' folder is missing"):
        peers_of(tmp_path / "none", PROGRAM)


def test_our_own_program_leaves_out_what_is_not_installed(tmp_path):
    python = tmp_path / "vllm" / "bin" / "python"
    python.parent.mkdir(parents=True)
    (tmp_path / "model").mkdir()
    row = {"peer": "vllm", "seconds": 1.0}
    python.write_text(
        f"#!{sys.executable}\nimport sys\nprint('noise')\nprint('{json.dumps(row)}')\n"
        "assert sys.argv[2:] == ['--one', 'vllm', sys.argv[4], 'start'], sys.argv\n"
    )
    python.chmod(0o755)
    command = [*PROGRAM, str(tmp_path), "start"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [json.loads(line) for line in ended.stdout.splitlines()] == [row]
    assert "transformers is left out" in ended.stderr


def test_our_own_program_goes_on_after_an_engine_that_crashes(tmp_path):
    for environment, text in (("vllm", "import os; os.abort()"), ("hf", "print('{\"ok\": 1}')")):
        python = tmp_path / environment / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(f"#!{sys.executable}\n{text}\n")
        python.chmod(0o755)
    (tmp_path / "model").mkdir()
    command = [*PROGRAM, str(tmp_path), "start"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert rows[0] == {"ok": 1}
    assert rows[1]["peer"] == "vllm"
    assert "exit code -6" in rows[1]["error"]


# All of it


def fake_ours(words, settings):
    """Figures by what is asked: int8 is twice as fast, and not there for long prompts."""
    if settings.get("quantization") and "1x2000+1" in words:
        raise ConfigError("no int8 today")
    speed = 2.0 if settings.get("quantization") else 1.0
    if words[0] == "start":
        return {"seconds": 3.0, "peak_mib": 500.0}
    if words[0] == "step":
        return {"step_ms": float(words[words.index("--context") + 1])}
    row = {"case": words[1], "seconds": 1 / speed, "ttft_s": 0.5, "decode_tokens_per_s": None}
    return {"cases": [{**row, "output_tokens_per_s": 100 * speed}]}


def fake_peers(words):
    if words == ("start",):
        return Peers(metrics={goals.HF: {"ttft_s": 5.0}, goals.VLLM: {"ttft_s": 20.0}})
    rate = {"output_tokens_per_s": 50.0, "decode_tokens_per_s": 70.0, "ttft_s": 1.0}
    return Peers(metrics={goals.VLLM: rate, goals.F16: rate}, failed={goals.Q8: "it crashed"})


@pytest.fixture
def samples():
    said = []
    found = compare([*tasks("m", "g")], 2, fake_peers, said.append, fake_ours)
    assert said[0] == "round 1 of 2: 1x128+64"
    assert len(said) == 2 * len([*tasks("m", "g")])
    return found


def test_every_round_measures_ours_and_the_peers(samples):
    rounds = {name: len(found) for name, found in samples.metrics["16x128+64"].items()}
    assert rounds == dict.fromkeys((goals.OURS, goals.INT8, goals.VLLM, goals.F16), 2)
    assert samples.median("16x128+64", goals.INT8, goals.RATE) == 200
    assert set(samples.metrics[goals.START]) == {goals.OURS, goals.GGUF, goals.HF, goals.VLLM}


def test_goals_are_ratios_of_medians(samples):
    found = {row["goal"]: (row["ratio"], row["met"]) for row in as_json(samples, {})["goals"]}
    assert found["16x128+64: output_tokens_per_s, framework / vllm >= 1.5"] == (2.0, True)
    assert found["1x128+64: output_tokens_per_s, framework / vllm >= 3"] == (2.0, False)
    assert found["1x2000+1: ttft_s, framework / llama.cpp-F16 <= 1"] == (0.5, True)
    step = "32 rows at 1500: step_ms, framework / framework at 32 rows at 100 <= 1.5"
    assert found[step] == (15.0, False)
    assert found["start: ttft_s, framework / transformers <= 0.5"] == (0.6, False)
    assert found["start: ttft_s, framework / vllm <= 0.2"] == (0.15, True)
    # No figures of llama.cpp's Q8_0 came.
    assert found["16x128+64: output_tokens_per_s, framework int8 / llama.cpp-Q8_0 >= 1.9"] == (
        None,
        False,
    )


def test_what_int8_cannot_do_is_told_once_and_left_out(samples):
    assert [name for name in samples.missing if name[1] == goals.INT8] == [(goals.LONG, goals.INT8)]
    assert "no int8 today" in samples.missing[goals.LONG, goals.INT8]


def test_a_peer_that_fails_leaves_the_others(tmp_path, samples):
    assert samples.missing["16x128+64", goals.Q8] == "it crashed"
    text = "print(json.dumps({'peer': 'vllm', 'seconds': 1, 'output_tokens_per_s': 2}))\n"
    text += "print(json.dumps({'peer': 'llama.cpp-F16', 'error': 'it crashed'}))"
    found = run_peers(program(tmp_path, text), tmp_path, ("1", "2", "3"))
    assert [*found.metrics] == [goals.VLLM]
    assert found.failed == {goals.F16: "it crashed"}


def test_an_odd_round_does_not_count():
    found = Samples()
    for seconds in (1.0, 9.0, 1.2):
        found.add("a", "b", {"seconds": seconds})
    assert found.median("a", "b", "seconds") == 1.2
    assert found.median("a", "b", "other") is None


def test_plain_ours_must_work():
    def broken(words, settings):
        raise ConfigError("broken")

    task = Task(name="t", ours=next(iter(tasks("m", None))).ours, peers=None, read=dict)
    with pytest.raises(ConfigError, match="broken"):
        compare([task], 1, None, lambda text: None, broken)


def test_tables_show_tasks_and_goals(samples):
    rows = table(samples).row_count, goal_table(samples).row_count
    assert rows == (sum(map(len, samples.metrics.values())), len(goals.GOALS))
    goal = Goal(task="none", metric="m", subject="a", beside="b", least=1)
    assert goal_table(samples, [goal]).row_count == 0
