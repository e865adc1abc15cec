"""What a model in this process gives on a workload: tokens per second, time to first token."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from framework.contracts.sampling import SamplingParams

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from framework.bench.workload import Case
    from framework.engine.llm import LLM
    from framework.engine.outputs import RequestOutput

ROUNDS = 2
"""Of which the better counts, as with the peers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """seconds: from the call to its return.  output_tokens_per_s: over all of that.
    ttft_s: until the last request has its first token.  decode_tokens_per_s: of what came after
    that token, None where nothing did; meant for requests that run side by side from there on.
    """

    case: str
    seconds: float
    output_tokens_per_s: float
    ttft_s: float
    decode_tokens_per_s: float | None


def measure(llm: LLM, case: Case, rounds: int = ROUNDS) -> Throughput:
    """The best of `rounds` rounds; none finds what another one left in the prefix cache."""
    prompts = case.prompts(llm.get_tokenizer().vocab_size)
    _run(llm, prompts[:2], 2)
    found = [_round(llm, case, prompts) for _ in range(rounds)]
    return min(found, key=lambda each: each.seconds)


def _round(llm: LLM, case: Case, prompts: Sequence[Sequence[int]]) -> Throughput:
    llm.reset_prefix_cache()
    if case.warm:
        _run(llm, [prompts[0][: case.shared + 1]], 1)
    began, start = time.time(), time.perf_counter()
    outputs = _run(llm, prompts, case.output)
    seconds = time.perf_counter() - start
    first = max(_first(output) for output in outputs) - began
    later, spent = case.requests * (case.output - 1), seconds - first
    return Throughput(
        case=str(case),
        seconds=seconds,
        output_tokens_per_s=case.requests * case.output / seconds,
        ttft_s=first,
        decode_tokens_per_s=later / spent if later and spent > 0 else None,
    )


def _run(llm: LLM, prompts: Sequence[Sequence[int]], tokens: int) -> list[RequestOutput]:
    params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
    asked = [{"prompt_token_ids": [*prompt]} for prompt in prompts]
    return llm.generate(asked, params, use_tqdm=False)


def _first(output: RequestOutput) -> float:
    metrics = output.metrics
    assert metrics is not None
    assert metrics.first_token_time is not None
    return metrics.first_token_time


def table(rows: Sequence[Throughput]) -> Table:
    """One row per case."""
    from rich.table import Table

    head = ("case", "seconds", "tokens/s", "TTFT s", "decode tokens/s")
    made = Table(*head, box=None)
    for column in made.columns[1:]:
        column.justify = "right"
    for row in rows:
        decode = row.decode_tokens_per_s
        made.add_row(
            row.case,
            f"{row.seconds:.3f}",
            f"{row.output_tokens_per_s:.1f}",
            f"{row.ttft_s:.3f}",
            "-" if decode is None else f"{decode:.1f}",
        )
    return made


def as_json(rows: Sequence[Throughput]) -> dict[str, Any]:
    """What `--json` writes."""
    from framework import __version__

    return {"version": __version__, "cases": [asdict(row) for row in rows]}
