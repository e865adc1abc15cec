"""From process start to the first token, in a fresh process, and the memory it took at most."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from framework.errors import ConfigError

PROMPT = "The capital of France is"
SECONDS = 600
# What a user's program does.  The last line says what came of it: the clock of the parent runs
# until it is read, so that the interpreter's own start counts as well.
_PROGRAM = """
import json, logging, sys
logging.basicConfig(level=logging.INFO, format="%(message)s")
options = json.loads(sys.argv[1])
from framework import LLM, SamplingParams
llm = LLM(**options)
llm.generate(sys.argv[2], SamplingParams(temperature=0, max_tokens=1), use_tqdm=False)
import time
logging.disable()
print(json.dumps({"at": time.time()}), flush=True)
import resource
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
heavy = [name for name in ("transformers", "torch._dynamo", "sympy") if name in sys.modules]
print(json.dumps({"peak": peak, "modules": len(sys.modules), "heavy": heavy}))
"""


# What the engine logs at the end of a phase of its start.
_PHASE = re.compile(r"(?m)^(.+) ready in ([0-9.]+) s$")


def measure(options: Mapping[str, Any]) -> dict[str, Any]:
    """options: of LLM.  Returns seconds, peak_mib (resident memory), modules (how many were
    imported), heavy (large libraries among them) and phases (seconds, by what the engine calls
    them; "else" are imports before them and the first token).  Raises ConfigError if it fails."""
    command = [sys.executable, "-c", _PROGRAM, json.dumps(dict(options)), PROMPT]
    began = time.time()
    ended = subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=SECONDS
    )
    lines = [line for line in ended.stdout.splitlines() if line.startswith("{")]
    if ended.returncode or len(lines) < 2:
        raise ConfigError(
            "the engine did not come to its first token",
            found=f"exit code {ended.returncode}; {ended.stderr[-800:]}",
        )
    first, last = (json.loads(line) for line in lines[-2:])
    # Kilobytes on Linux, bytes on macOS.
    unit = 1024 if sys.platform == "linux" else 1024 * 1024
    seconds = first["at"] - began
    phases = {name: float(spent) for name, spent in _PHASE.findall(ended.stderr)}
    phases["else"] = seconds - sum(phases.values())
    return {
        "seconds": seconds,
        "phases": phases,
        "peak_mib": last["peak"] / unit,
        "modules": last["modules"],
        "heavy": last["heavy"],
    }
