"""`framework bench`: from words to tables and files."""

from __future__ import annotations

import json
import sys

import pytest

from framework.cli import main

SMALL = ("--num-requests", "20", "--prompt-len", "32", "--output-len", "uniform:2:6")


@pytest.fixture
def bench(monkeypatch, capsys):
    """Run `framework ROOT bench ARGUMENTS`; returns (exit code, stdout, stderr)."""

    def call(*arguments, root=()):
        monkeypatch.setattr(sys, "argv", ["framework", *root, "bench", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            main()
        shown = capsys.readouterr()
        return exit_.value.code or 0, shown.out, shown.err

    return call


def test_each_policy_and_tenant_has_a_row(bench):
    arguments = ("--tenants", "a:3,b", "--policy", "fcfs,fair", "--slo-ttft", "1")
    code, out, _ = bench("schedule", *SMALL, *arguments)
    assert code == 0
    rows = [line.split()[:2] for line in out.splitlines()[2:]]
    assert rows == [[p, t] for p in ("fcfs", "fair") for t in ("all", "a", "b")]


def test_the_result_says_how_to_repeat_it(bench, tmp_path):
    files = [tmp_path / "one.json", tmp_path / "two.json"]
    for file in files:
        arguments = ("--seed", "5", "--rate", "inf", "--cost", "base_us=1000", "--json", file)
        assert bench("schedule", *SMALL, *arguments)[0] == 0
    one, two = (json.loads(file.read_text()) for file in files)
    for result in (one, two):
        assert result["policies"][0].pop("wall_seconds") > 0
    assert one == two
    settings = one["settings"]
    assert (settings["seed"], settings["rate"], settings["num_requests"]) == (5, "inf", 20)
    assert settings["cost"]["base_us"] == 1000
    assert settings["output_len"] == ["uniform:2:6"]
    assert one["policies"][0]["all"]["requests"] == 20


def test_arrivals_come_from_a_file(bench, tmp_path):
    file, result = tmp_path / "arrivals.jsonl", tmp_path / "result.json"
    file.write_text(
        '{"arrival": 2, "prompt": 8, "output": 2, "tenant": "x"}\n\n'
        '{"arrival": 0.5, "prompt": 8, "output": 1, "priority": 3}\n'
    )
    cost = "base_us=1e6, token_us=0, row_us=0, context_us=0"
    code, _, _ = bench("schedule", "--arrivals", file, "--cost", cost, "--json", result)
    assert code == 0
    found = json.loads(result.read_text())
    assert found["policies"][0]["simulated_seconds"] == 4
    assert sorted(found["policies"][0]["tenants"]) == ["", "x"]
    assert len(found["settings"]["arrivals_sha256"]) == 64


def test_a_policy_of_a_third_party_is_found_by_name(bench):
    root = ("--plugin", "scheduling_policy:mine=framework.core.policies:Priority")
    code, out, _ = bench("schedule", *SMALL, "--policy", "mine", root=root)
    assert code == 0
    assert out.splitlines()[2].split()[0] == "mine"


def test_a_plot_is_written(bench, tmp_path):
    pytest.importorskip("matplotlib")
    file = tmp_path / "plot.png"
    assert bench("schedule", *SMALL, "--tenants", "a,b", "--plot", file)[0] == 0
    assert file.read_bytes().startswith(b"\x89PNG")
    code, _, err = bench("schedule", *SMALL, "--plot", tmp_path / "plot.xyz")
    assert code == 1
    assert "known ending" in err


def lines(*tenants):
    """A trace with a request of each."""
    return "".join(
        json.dumps({"arrival": 1, "prompt": 3, "output": 2, "tenant": name}, ensure_ascii=False)
        + "\n"
        for name in tenants
    ).encode("utf-8", "surrogatepass")


STRANGE = ["a\u2028b", "a\x85b", "\x1b[31mred", "[bold]", "$\\frac{", "\0"]
SHOWN = [r"a\u2028b", r"a\x85b", r"\x1b[31mred", "[bold]", r"$\frac{", r"\x00", r"\ud800"]


def test_names_of_tenants_may_hold_anything_and_are_shown_readably(bench, tmp_path):
    pytest.importorskip("matplotlib")
    file = tmp_path / "arrivals.jsonl"
    half = b'{"arrival": 1, "prompt": 3, "output": 2, "tenant": "\\ud800"}\n'
    file.write_bytes(lines(*STRANGE) + half)
    results = ("--json", tmp_path / "r.json", "--plot", tmp_path / "r.svg")
    code, out, err = bench("schedule", "--arrivals", file, *results)
    assert (code, err) == (0, "")
    assert [line.split()[1] for line in out.splitlines()[3:]] == SHOWN
    out.encode()  # a terminal could
    (run,) = json.loads((tmp_path / "r.json").read_text())["policies"]
    assert list(run["tenants"]) == [*STRANGE, "\ud800"]


def test_of_many_tenants_those_with_the_most_requests_have_rows(bench, tmp_path):
    file = tmp_path / "arrivals.jsonl"
    file.write_bytes(lines(*(f"t{n}" for n in range(100)), *(f"t{n}" for n in range(50, 90))))
    code, out, _ = bench("schedule", "--arrivals", file, "--json", tmp_path / "r.json")
    assert code == 0
    assert [line.split()[1] for line in out.splitlines()[2:]] == [
        "all",
        *(f"t{n}" for n in range(50, 90)),
    ]
    (run,) = json.loads((tmp_path / "r.json").read_text())["policies"]
    assert len(run["tenants"]) == 100


def test_shares_may_be_as_large_and_as_small_as_numbers_are(bench):
    code, out, _ = bench("schedule", *SMALL, "--tenants", "a:1e308,b:1e308,c:5e-324")
    assert code == 0
    requests = {line.split()[1]: int(line.split()[2]) for line in out.splitlines()[2:]}
    assert requests["c"] == 0 < min(requests["a"], requests["b"])


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--json", "in.jsonl"), "--json would overwrite the file of --arrivals"),
        (("--plot", "./in.svg"), "--plot would overwrite the file of --arrivals"),
        (("--json", "o.svg", "--plot", "o.svg"), "--plot would overwrite the file of --json"),
    ],
)
def test_nothing_is_written_over_another_file(bench, tmp_path, monkeypatch, flags, words):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.jsonl").write_bytes(lines("a"))
    (tmp_path / "in.svg").symlink_to("in.jsonl")
    code, out, err = bench("schedule", "--arrivals", "in.jsonl", *flags)
    assert (code, out) == (1, "")
    assert words in err
    assert (tmp_path / "in.jsonl").read_bytes() == lines("a")


def test_without_matplotlib_a_plot_says_what_to_install(bench, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, out, err = bench("schedule", *SMALL, "--plot", "plot.png")
    assert (code, out) == (1, "")
    assert "framework[bench]" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--policy", "fcsf"), "did you mean 'fcfs'"),
        (("--policy", "fcfs,,fair"), "--policy is invalid"),
        (("--cost", "base_ms=1"), "did you mean 'base_us'"),
        (("--cost", "base_us=much"), "base_us is invalid"),
        (("--cost", "base_us=-1"), "base_us is invalid"),
        (("--cost", "base_us=0,token_us=0,row_us=0,context_us=0"), "take some time"),
        (("--prompt-len", "uniform:9:1"), "--prompt-len is no distribution"),
        (("--prompt-len", "uniform:9"), "--prompt-len is no distribution"),
        (("--output-len", "nan"), "--output-len is no distribution"),
        (("--output-len", "x=5"), "unknown tenant"),
        (("--tenants", "a,a"), "--tenants is invalid"),
        (("--tenants", "a:-1"), "--tenants is invalid"),
        (("--flood", "big:many@0"), "--flood is invalid"),
        (("--flood", "big:5"), "--flood is invalid"),
        (("--num-requests", "0"), "number of requests"),
        (("--slo-ttft", "inf"), "--slo-ttft is invalid"),
        (("--num-pages", "4", "--prompt-len", "500"), "does not fit the cache"),
        (("--arrivals", "missing.jsonl"), "cannot be read"),
        (("--arrivals", "missing.jsonl", "--rate", "3"), "exclude each other"),
        (("--json", "missing/folder/x.json", *SMALL), "cannot be written"),
    ],
)
def test_a_wrong_flag_is_one_clear_error(bench, arguments, words):
    code, _, err = bench("schedule", *arguments)
    assert code == 1
    assert err.startswith("error: ")
    assert words in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("flag", "value"),
    [("--rate", "nan"), ("--rate", "0"), ("--burstiness", "-1"), ("--num-pages", "1e3")],
)
def test_a_number_out_of_range_is_a_wrong_use(bench, flag, value):
    code, out, err = bench("schedule", flag, value)
    assert (code, out) == (2, "")
    assert flag in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"[1]", "is no request"),
        (b"{", "is no JSON"),
        (b"[" * 100_000, "is no JSON"),
        (b"\xff", "cannot be read"),
        (b'{"arrival": 1, "prompt": 1}', "lacks 'output'"),
        (b'{"arrival": 1, "prompt": 1, "output": 1, "tennant": ""}', "did you mean 'tenant'"),
        (b'{"arrival": NaN, "prompt": 1, "output": 1}', "'arrival' is invalid"),
        (b'{"arrival": -1, "prompt": 1, "output": 1}', "'arrival' is invalid"),
        (b'{"arrival": 1, "prompt": 0, "output": 1}', "'prompt' is invalid"),
        (b'{"arrival": 1, "prompt": 1.5, "output": 1}', "'prompt' is invalid"),
        (b'{"arrival": 1, "prompt": 1, "output": 1e400}', "'output' is invalid"),
        (b'{"arrival": 1, "prompt": 1, "output": 1, "tenant": 5}', "'tenant' is invalid"),
        (b'{"arrival": 1, "prompt": 1, "output": 1, "priority": true}', "'priority' is invalid"),
        (b"", "holds no request"),
    ],
)
def test_a_wrong_line_is_named(bench, tmp_path, line, words):
    file = tmp_path / "arrivals.jsonl"
    good = b'{"arrival": 1, "prompt": 1, "output": 1}\n' if line else b"\n"
    file.write_bytes(good + line)
    code, _, err = bench("schedule", "--arrivals", file)
    assert code == 1
    assert err.startswith("error: ")
    assert words in err
    assert "Traceback" not in err
    if words not in ("cannot be read", "holds no request"):
        assert "line 2" in err


# bench core


def peer(tmp_path, text):
    """A folder as a peer's set-up leaves it; what stands for its Python runs `text` instead."""
    (tmp_path / "vllm" / "bin").mkdir(parents=True)
    (tmp_path / "model").mkdir()
    python = tmp_path / "vllm" / "bin" / "python"
    python.write_text(f"#!{sys.executable}\n{text}\n")
    python.chmod(0o755)
    return ("--peers", tmp_path)


def test_the_core_is_measured_beside_its_peer(bench, tmp_path):
    row = {"requests": 2, "step_us": 1e6, "us_per_request_step": 5e5, "add_us": 1e6}
    script = f"import sys; print('noise'); print({json.dumps(json.dumps(row))})\n"
    script += "assert sys.argv[1].endswith('vllm_peer.py') and sys.argv[2].endswith('model')\n"
    script += "assert sys.argv[3:] == ['--requests', '1,2', '--steps', '3']"
    result = tmp_path / "result.json"
    arguments = ("--requests", "1,2", "--steps", "3", "--waiting", "2", "--json", result)
    code, out, err = bench("core", *arguments, *peer(tmp_path, script))
    assert (code, err) == (0, "")
    assert out.splitlines()[-1].count("x") == 2
    found = json.loads(result.read_text())
    assert found["peer"] == [row]
    assert [ours["requests"] for ours in found["ours"]] == [1, 2]
    for ours in found["ours"]:
        assert 0 < ours["hash_us"] < ours["add_us"]
        assert ours["admit_us"] > 0
        assert ours["us_per_request_step"] * ours["requests"] == pytest.approx(ours["step_us"])


def test_the_peers_script_has_our_shape():
    """Both measure the same work; and it can be read where the engine is not installed."""
    from framework.bench import core, vllm_peer

    names = ("VOCABULARY", "PROMPT", "OUTPUT", "PAGE", "BUDGET", "LONGEST")
    for name in (*names, "LEAST_ADDED", "ADDED_BEFORE"):
        assert getattr(core, name) == getattr(vllm_peer, name)
    assert "framework" not in {
        line.split()[1].partition(".")[0]
        for line in core.PEER_SCRIPT.read_text().splitlines()
        if line.startswith(("import ", "from "))
    }


@pytest.mark.parametrize(
    ("script", "words"),
    [("raise SystemExit('broken')", "broken"), ("print('{}')", "0 rows")],
)
def test_a_peer_that_fails_is_one_clear_error(bench, tmp_path, script, words):
    arguments = ("--requests", "1", "--steps", "1", *peer(tmp_path, script))
    code, _, err = bench("core", *arguments)
    assert code == 1
    assert err.startswith("error: the peer's script failed")
    assert words in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--requests", "0"), "--requests is invalid"),
        (("--requests", "1,x"), "--requests is invalid"),
        (("--requests", "1", "--steps", "1", "--peers", "missing"), "is missing"),
    ],
)
def test_wrong_flags_of_bench_core_are_errors(bench, arguments, words):
    code, _, err = bench("core", *arguments)
    assert code == 1
    assert words in err
