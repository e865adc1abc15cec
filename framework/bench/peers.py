"""Runs engines in processes of their own, one at a time, and reads what they found.

The peers are behind one program, called as

    PROGRAM FOLDER REQUESTS PROMPT OUTPUT     that many requests, prompt tokens and output tokens
    PROGRAM FOLDER start                      from process start to the first token

It prints for each peer a JSON object with `peer`, `seconds`, `output_tokens_per_s` and, if it
knows, `decode_tokens_per_s`; for a start a line "NAME first token s SECONDS" does as well.  Of a
peer that failed it prints `peer` and `error`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from framework.bench.goals import HF, VLLM
from framework.errors import ConfigError

SECONDS = 3600
PROGRAM = (sys.executable, str(Path(__file__).parent / "peer_engines.py"))
Metrics = Mapping[str, float]
_START = re.compile(r"(\S+) first token s ([\d.]+)")
# Peers say more in their names than which engine it is.
_NAMES = {"vllm": VLLM, "transformers": HF, "hf": HF}


def run(command: Sequence[str], what: str) -> str:
    """What it prints.  Raises ConfigError with the end of its errors if it fails."""
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{what} did not run to its end: {error}") from error
    if ended.returncode:
        raise ConfigError(
            f"{what} failed",
            expected="exit code 0",
            found=f"exit code {ended.returncode}; {ended.stderr[-800:]}",
        )
    return ended.stdout


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """By peer: metrics, or why there are none."""

    metrics: Mapping[str, Metrics]
    failed: Mapping[str, str] = field(default_factory=dict)


def run_peers(program: Sequence[str], folder: Path, words: Sequence[str]) -> Peers:
    """Raises ConfigError if the program fails or prints no figures."""
    printed = run([*program, str(folder), *words], "the peers' program")
    lines = printed.splitlines()
    found = dict(row for line in lines if (row := _row(line)) is not None)
    failed = dict(told for line in lines if (told := _failure(line)) is not None)
    if not found:
        raise ConfigError(
            "the peers' program printed no figures",
            expected='JSON lines with "peer" and "seconds"',
            found=repr(printed[-300:]),
        )
    return Peers(metrics=found, failed=failed)


def _failure(line: str) -> tuple[str, str] | None:
    try:
        row = json.loads(line)
        return _name(row["peer"]), str(row["error"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _row(line: str) -> tuple[str, Metrics] | None:
    start = _START.search(line)
    if start is not None:
        return _name(start[1]), {"ttft_s": float(start[2])}
    try:
        row = json.loads(line)
        metrics = {name: float(value) for name, value in row.items() if _is_number(value)}
        name = _name(row["peer"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if "seconds" not in metrics:
        return None
    if row.get("output_len") == 1:
        metrics.setdefault("ttft_s", metrics["seconds"])
    return name, metrics


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _name(text: str) -> str:
    """Without what a peer says of its build, except where it has several."""
    return _NAMES.get(text.partition("-")[0], text)


def run_ours(words: Sequence[str], settings: Mapping[str, str]) -> Any:
    """The JSON that `framework bench WORDS --json FILE` writes, in a process of its own.
    settings: fields of the configuration.  Raises ConfigError."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.json"
        flags = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        command = [sys.executable, "-m", "framework", "bench", *words, *flags]
        run([*command, "--json", str(file)], f"framework bench {words[0]}")
        return json.loads(file.read_text("utf-8"))
