"""From measured requests to figures, under vLLM's names so that its tools read the files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from framework.errors import ConfigError
from framework.plugins.near import did_you_mean
from framework_commands.bench.drive import Driven
from framework_commands.bench.measure import Measured

METRICS: Mapping[str, tuple[str, Callable[[Measured], list[float]]]] = {
    "ttft": ("time to first token", lambda one: [one.ttft]),
    "tpot": ("time per output token, the first left out", lambda one: _tpot(one)),
    "itl": ("inter-token latency, from chunk to chunk", lambda one: one.itl),
    "e2el": ("end-to-end latency", lambda one: [one.latency]),
}
"""name -> (what it is, its values of one request in seconds)."""
OBJECTIVES = ("ttft", "tpot", "e2el")
"""What a request as a whole can be held to."""


def _tpot(one: Measured) -> list[float]:
    return [] if one.tpot is None else [one.tpot]


def parse_goodput(texts: Sequence[str]) -> dict[str, float]:
    """Read NAME:MILLISECONDS, several in one text apart by blanks or commas.  Raises
    ConfigError."""
    found: dict[str, float] = {}
    for text in " ".join(texts).replace(",", " ").split():
        name, _, number = text.partition(":")
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if name not in OBJECTIVES or not 0 < value < float("inf") or name in found:
            raise ConfigError(
                f"--goodput is invalid{did_you_mean(name, OBJECTIVES)}",
                expected=f"NAME:MILLISECONDS, each once of {', '.join(OBJECTIVES)}",
                found=repr(text),
            )
        found[name] = value
    return found


def parse_percentiles(text: str) -> list[float]:
    """Read "50,99".  Raises ConfigError."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < one < 100 for one in found):
        raise ConfigError(
            "--metric-percentiles is invalid", expected="numbers in (0, 100)", found=repr(text)
        )
    return found


def parse_metrics(text: str) -> list[str]:
    """Read "ttft,itl".  Raises ConfigError."""
    names = [part.strip() for part in text.split(",")]
    for name in names:
        if name not in METRICS:
            raise ConfigError(
                f"--percentile-metrics has an unknown name{did_you_mean(name, METRICS)}",
                expected=f"some of {', '.join(METRICS)}",
                found=repr(name),
            )
    return names


def is_good(one: Measured, objectives: Mapping[str, float]) -> bool:
    """Answered, and within every objective, in milliseconds.  One token has no tpot."""
    if one.failure is not None:
        return False
    return all(
        value * 1e3 <= objectives[name] for name in objectives for value in METRICS[name][1](one)
    )


def figures(
    driven: Driven, objectives: Mapping[str, float], percentiles: Sequence[float]
) -> dict[str, Any]:
    """All figures of one run; times in milliseconds, rates per second.  Only answered requests
    have times, tokens and a place in the rates; None where no request has such a time."""
    answered = [one for one in driven.results if one.failure is None]
    failures = Counter(one.failure for one in driven.results if one.failure is not None)
    seconds = max(driven.seconds, 1e-9)
    prompt, output = (sum(getattr(one, name) for one in answered) for name in ("prompt", "output"))
    found: dict[str, Any] = {
        "duration": driven.seconds,
        "completed": len(answered),
        "failed": len(driven.results) - len(answered),
        "failures": dict(failures.most_common()),
        "total_input_tokens": prompt,
        "total_output_tokens": output,
        "output_tokens_estimated": any(one.estimated for one in answered),
        "request_throughput": len(answered) / seconds,
        "output_throughput": output / seconds,
        "total_token_throughput": (prompt + output) / seconds,
        "max_concurrent_requests": driven.peak,
        "max_wait_for_turn_ms": driven.late * 1e3,
    }
    if objectives:
        good = sum(is_good(one, objectives) for one in driven.results)
        found["request_goodput"] = good / seconds
        found["goodput_fraction"] = good / max(len(driven.results), 1)
    for name, (_, values) in METRICS.items():
        times = [value for one in answered for value in values(one)]
        found |= _summary(name, np.array(times) * 1e3, percentiles)
    return found


def _summary(name: str, values: Any, percentiles: Sequence[float]) -> dict[str, float | None]:
    some = len(values) > 0
    found = {
        f"mean_{name}_ms": float(np.mean(values)) if some else None,
        f"median_{name}_ms": float(np.median(values)) if some else None,
        f"std_{name}_ms": float(np.std(values)) if some else None,
    }
    for one in percentiles:
        found[f"p{one:g}_{name}_ms"] = float(np.percentile(values, one)) if some else None
    return found


def details(results: Sequence[Measured]) -> dict[str, list[Any]]:
    """Of each request; times in seconds, as vLLM has them."""
    return {
        "input_lens": [one.prompt for one in results],
        "output_lens": [one.output for one in results],
        "start_times": [one.started for one in results],
        "ttfts": [one.ttft for one in results],
        "itls": [one.itl for one in results],
        "e2els": [one.latency for one in results],
        "generated_texts": [one.text for one in results],
        "errors": [one.reason for one in results],
    }
