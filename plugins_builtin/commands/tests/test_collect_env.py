"""`framework collect-env`: what it tells, and what it keeps to itself."""

from __future__ import annotations

import json
import subprocess
import sys

import framework
from framework_commands.collect_env import HIDDEN, cpu_limit, environment, memory_limit


def test_json_has_versions_plugins_and_limits(run, monkeypatch):
    monkeypatch.setenv("FRAMEWORK_PLUGINS_DENY", "stat_logger:log")
    code, out, err = run("--plugin", "tokenizer:mine=nowhere:X", "collect-env", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["framework"]["framework"].startswith(framework.__version__)
    assert found["python"]["version"] == sys.version.split()[0]
    assert found["machine"]["cpus"] >= 1
    assert found["libraries"]["httpx"]
    by_name = {row["plugin"]: row for row in found["plugins"]}
    assert by_name["tokenizer:mine@ad-hoc"]["origin"] == "ad hoc"
    assert by_name["command:collect-env@framework-plugin-commands"]["first_party"]
    assert by_name["stat_logger:log@framework"]["state"] == "denied"
    assert found["environment"]["FRAMEWORK_PLUGINS_DENY"] == "stat_logger:log"


def test_text_has_the_same_sections(run):
    sections = json.loads(run("collect-env", "--json")[1])
    lines = run("collect-env")[1].splitlines()
    assert [line for line in lines if not line.startswith(" ")] == list(sections)
    assert any("command:run-batch@framework-plugin-commands" in line for line in lines)


def test_secrets_are_masked_and_other_variables_left_out():
    given = {
        "FRAMEWORK_API_KEY": "s3cret",
        "FRAMEWORK_MODEL__TOKEN": "s3cret",
        "FRAMEWORK_PLUGIN_OPTION__FRONT_END__HTTP__API_KEYS": "s3cret",
        "FRAMEWORK_PLUGIN__PLUGIN_OPTIONS": "{front_end: {http: {api_keys: [s3cret]}}}",
        "HF_TOKEN": "s3cret",
        "HTTPS_PROXY": "http://me:s3cret@proxy:3128",
        "TOKENIZERS_PARALLELISM": "false",
        "FRAMEWORK_SCHEDULER__MAX_NUM_SEQS": "4",
        "AWS_REGION": "s3cret",
        "MY_OWN": "s3cret",
    }
    found = dict(environment(given))
    assert "s3cret" not in str(found)
    assert set(given) - set(found) == {"AWS_REGION", "MY_OWN"}
    assert found["TOKENIZERS_PARALLELISM"] == "false"
    assert found["FRAMEWORK_SCHEDULER__MAX_NUM_SEQS"] == "4"
    assert found["HTTPS_PROXY"] == f"http://{HIDDEN}@proxy:3128"


def test_limits_of_containers_are_read_from_both_versions_of_cgroups(tmp_path):
    assert (cpu_limit(tmp_path), memory_limit(tmp_path)) == (None, None)
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "memory.max").write_text("1073741824\n")
    assert (cpu_limit(tmp_path), memory_limit(tmp_path)) == (1.5, 2**30)
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert (cpu_limit(tmp_path), memory_limit(tmp_path)) == (None, None)
    old = tmp_path / "old"
    (old / "cpu").mkdir(parents=True)
    (old / "memory").mkdir()
    (old / "cpu" / "cpu.cfs_quota_us").write_text("50000")
    (old / "cpu" / "cpu.cfs_period_us").write_text("100000")
    (old / "memory" / "memory.limit_in_bytes").write_text(str(2**63 - 4096))
    assert (cpu_limit(old), memory_limit(old)) == (0.5, None)


def test_a_configuration_that_cannot_be_read_is_part_of_the_report(run, monkeypatch):
    """It is then that a report is needed."""
    monkeypatch.setenv("FRAMEWORK_SCHEDULER__MAX_NUM_SEQ", "3")
    code, out, _ = run("collect-env", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["plugins"].startswith("not known: unknown scheduler field 'max_num_seq'")
    assert found["environment"]["FRAMEWORK_SCHEDULER__MAX_NUM_SEQ"] == "3"


def test_nothing_heavy_is_imported():
    code = (
        "import sys; sys.argv[1:] = ['collect-env']\n"
        "from framework.cli import main\ntry: main()\nexcept SystemExit: pass\n"
        "print('MODULES', *{name.partition('.')[0] for name in sys.modules})"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    modules = set(ended.stdout.splitlines()[-1].split()[1:])
    assert not {"torch", "transformers", "fastapi", "httpx", "framework_torch"} & modules
