"""Several examples at work in one engine, without a model."""

from __future__ import annotations

import json
import re

SCRIPT = """
import json, logging, socket, sys

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 0))
server.settimeout(60)

from framework import LLM, SamplingParams
from framework.testing.fake_model import MODEL, fake_plugins

options = {{
    "stat_logger.statsd.port": server.getsockname()[1],
    "hooks.request_log.file": {file!r},
}}
with LLM(
    MODEL, plugins=fake_plugins(), plugin_options=options, executor="timed",
    model_runner="echo_runner", stat_loggers=["statsd"], max_model_len=200,
) as llm:
    params = [
        SamplingParams(max_tokens=5, ignore_eos=True),
        SamplingParams(max_tokens=3, bad_words=["b"]),
        SamplingParams(max_tokens=2, allowed_token_ids=[120]),
        SamplingParams(max_tokens=2, allowed_token_ids=[98], bad_words=["b"]),
    ]
    outputs = llm.generate(["abc"] * 4, params, use_tqdm=False)
    texts = [output.outputs[0].text for output in outputs]
print("FOUND", json.dumps([texts, server.recv(2000).decode()]))
"""


def test_runner_executor_hooks_and_stat_logger_work_together(run, tmp_path):
    """Prompts are repeated, but for what a request forbids: one that forbids all ends alone."""
    file = tmp_path / "requests.jsonl"
    env = {"FRAMEWORK_PLUGINS": "+hooks:request_log"}
    out = run(script=SCRIPT.format(file=str(file)), env=env)
    (line,) = [line for line in out.splitlines() if line.startswith("FOUND")]
    texts, datagram = json.loads(line.removeprefix("FOUND"))
    assert texts == ["abcab", "acc", "xx", ""]
    (times,) = re.findall(r"^(\d+) steps in \d\.\d{3} s$", out, re.M)
    assert int(times) >= 5
    assert "framework.generation_tokens:10|c\n" in datagram
    assert "framework.request_success:3|c|#finished_reason:length\n" in datagram
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert sorted((row["reason"], row["prompt"], row["output"]) for row in rows) == [
        ("error", 3, 0),
        ("length", 3, 2),
        ("length", 3, 3),
        ("length", 3, 5),
    ]
