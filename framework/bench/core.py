"""What scheduling a step costs: microseconds of the engine core itself, without a model.

All figures are time of the processor that the thread used, so that what else the machine does is
not counted: with more to do than it has cores, a long step would wait in its middle.

to add:       the median over requests of 512 random tokens, pages of 16, prefix caching on, once
              some were added before: of making one, `add`, and hashing its prompt
per step:     all n decode; the median of schedule() + update(), the runner left out; if asked,
              while others wait for a slot
"""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import thread_time
from typing import TYPE_CHECKING, Any

import numpy as np

from framework.bench.null_runner import NullRunner
from framework.contracts.messages import EngineInput
from framework.contracts.sampling import SamplingParams
from framework.core.config import CoreConfig
from framework.core.engine_core import EngineCore
from framework.core.kv.hashing import PageHasher, choose_hash
from framework.core.policies import FirstComeFirstServed
from framework.core.request import Request
from framework.errors import ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from framework.contracts.step import I32

VOCABULARY = 49_000
PROMPT, OUTPUT = 512, 500
PAGE, BUDGET, LONGEST = 16, 8192, 8192
LEAST_ADDED, ADDED_BEFORE = 64, 16
PEER_SECONDS = 1800
PEER_SCRIPT = Path(__file__).parent / "vllm_peer.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreFigures:
    """step_us: of one decode step of all requests.  us_per_request_step: the same by request.
    add_us: of making a request, `add` and hashing its prompt.  hash_us: the hashing alone, which
    the core does as far as a prefix is found, and when pages are named.  admit_us: the mean of all
    that a request costs until its first token is known: add, hashing, lookup, pages, its part of
    the steps.
    """

    requests: int
    step_us: float
    us_per_request_step: float
    add_us: float
    hash_us: float
    admit_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerFigures:
    """The same of another engine, as far as its script measures it."""

    requests: int
    step_us: float
    us_per_request_step: float
    add_us: float


def measure(requests: int, *, steps: int = 200, waiting: int = 0) -> CoreFigures:
    """Measure `requests` requests over `steps` decode steps, at most 300, while `waiting` more
    wait for a slot."""
    adding, hashing = _adding(max(requests, LEAST_ADDED))
    core, runner = _engine(requests)
    count = requests + waiting
    prompts = _prompts(count)
    start = thread_time()
    for index in range(count):
        core.add(_request(index, prompts[index]))
    admit = thread_time() - start
    decode: list[float] = []
    while len(decode) < steps:
        before, start = runner.seconds, thread_time()
        core.step()
        spent = thread_time() - start - (runner.seconds - before)
        plan = runner.last
        if plan is not None and plan.num_tokens == plan.num_rows == requests:
            decode.append(spent)
        else:
            admit += spent
    core.close()
    step = statistics.median(decode)
    return CoreFigures(
        requests=requests,
        step_us=step * 1e6,
        us_per_request_step=step / requests * 1e6,
        add_us=(adding + hashing) * 1e6,
        hash_us=hashing * 1e6,
        admit_us=admit / requests * 1e6,
    )


def _engine(requests: int) -> tuple[EngineCore, NullRunner]:
    """With a slot for each, and pages for all tokens of all of them."""
    runner = NullRunner(
        num_pages=requests * ((PROMPT + 600) // PAGE + 2) + 1000,
        page_tokens=PAGE,
        vocab_size=VOCABULARY,
    )
    config = CoreConfig(
        max_num_seqs=requests,
        max_num_batched_tokens=BUDGET,
        max_model_len=LONGEST,
        enable_prefix_caching=True,
    )
    return EngineCore(runner, runner.info(), config, policy=FirstComeFirstServed()), runner


def _prompts(count: int) -> I32:
    return np.random.default_rng(0).integers(0, VOCABULARY, (count, PROMPT), np.int32)


def _adding(requests: int) -> tuple[float, float]:
    """Seconds of making and adding a request, and of hashing all pages of its prompt: medians
    over `requests` requests."""
    core, _ = _engine(requests + ADDED_BEFORE)
    prompts = _prompts(requests + ADDED_BEFORE)
    new_hash, root = choose_hash("sha256")
    hasher = PageHasher("", PAGE, new_hash, root)
    adding, hashing = [], []
    for index, prompt in enumerate(prompts):
        start = thread_time()
        core.add(_request(index, prompt))
        added = thread_time()
        request = Request(_request(index, prompt), index, 0.0, 0)
        found = thread_time()
        hasher.extend(request, prompt, PROMPT // PAGE)
        hashing.append(thread_time() - found)
        adding.append(added - start)
    core.close()
    return statistics.median(adding[ADDED_BEFORE:]), statistics.median(hashing[ADDED_BEFORE:])


def _request(index: int, tokens: I32) -> EngineInput:
    return EngineInput(
        request_id=str(index),
        tokens=tokens,
        sampling=SamplingParams(max_tokens=OUTPUT, temperature=0, ignore_eos=True),
        seed=0,
        max_total=PROMPT + OUTPUT,
    )


def run_peer(folder: Path, requests: Sequence[int], *, steps: int = 200) -> list[PeerFigures]:
    """The figures of vLLM: runs `vllm_peer.py` with the Python of folder/vllm, on the model in
    folder/model.  It prints JSON lines with the fields of `PeerFigures`; others are skipped.

    Raises ConfigError if something is missing, fails, or prints no figures.
    """
    python, model = folder / "vllm" / "bin" / "python", folder / "model"
    for path, what in ((python, "the peer's Python"), (model, "the model")):
        if not path.exists():
            raise ConfigError(
                f"{what} is missing",
                expected="a folder with vllm/bin/python, where vLLM is installed, and model/",
                found=f"no {path}",
            )
    chosen = ["--requests", ",".join(map(str, requests)), "--steps", str(steps)]
    try:
        ended = subprocess.run(
            [str(python), str(PEER_SCRIPT), str(model), *chosen],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PEER_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"the peer's script did not run to its end: {error}") from error
    found = [row for line in ended.stdout.splitlines() if (row := _peer_row(line)) is not None]
    if ended.returncode or not found:
        raise ConfigError(
            "the peer's script failed",
            expected="exit code 0 and JSON lines with requests, step_us, us_per_request_step, "
            "add_us",
            found=f"exit code {ended.returncode}, {len(found)} rows; {ended.stderr[-800:]}",
        )
    return found


def _peer_row(line: str) -> PeerFigures | None:
    try:
        row = json.loads(line)
        return PeerFigures(
            requests=int(row["requests"]),
            step_us=float(row["step_us"]),
            us_per_request_step=float(row["us_per_request_step"]),
            add_us=float(row["add_us"]),
        )
    except (ValueError, KeyError, TypeError):
        return None


def table(ours: Sequence[CoreFigures], peers: Sequence[PeerFigures]) -> Table:
    """Side by side; a ratio says how many times ours the peer takes."""
    from rich.table import Table

    made = Table(
        *("requests", "us/step", "us/request-step", "us/add", "us/hashing", "us/admission"),
        *(("peer us/step", "peer us/request-step", "peer us/add") if peers else ()),
        *(("step ratio", "add ratio") if peers else ()),
        box=None,
    )
    for column in made.columns:
        column.justify = "right"
    by_requests = {row.requests: row for row in peers}
    for row in ours:
        cells = [
            str(row.requests),
            f"{row.step_us:.1f}",
            f"{row.us_per_request_step:.3f}",
            f"{row.add_us:.1f}",
            f"{row.hash_us:.1f}",
            f"{row.admit_us:.1f}",
        ]
        peer = by_requests.get(row.requests)
        if peer is not None:
            cells += [
                f"{peer.step_us:.1f}",
                f"{peer.us_per_request_step:.3f}",
                f"{peer.add_us:.1f}",
                f"{peer.step_us / row.step_us:.1f}x",
                f"{peer.add_us / row.add_us:.1f}x",
            ]
        made.add_row(*cells)
    return made


def as_json(ours: Sequence[CoreFigures], peers: Sequence[PeerFigures]) -> dict[str, Any]:
    """Both sides, and where it was."""
    from framework import __version__

    return {
        "version": __version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "shape": {"prompt": PROMPT, "page": PAGE, "budget": BUDGET, "prefix_caching": True},
        "ours": [asdict(row) for row in ours],
        "peer": [asdict(row) for row in peers],
    }
