"""A benchmark of a server at one rate or several."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from framework_commands.bench.asks import Ask, DataSet
from framework_commands.bench.drive import Driven, arrivals, drive
from framework_commands.bench.figures import details, figures
from framework_commands.bench.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is sent at each rate.  concurrency: requests at one time, None is any number."""

    data: DataSet
    num_prompts: int
    burstiness: float = 1.0
    concurrency: int | None = None
    warmups: int = 1
    seed: int = 0
    objectives: Mapping[str, float] = field(default_factory=dict)
    percentiles: Sequence[float] = (50, 90, 99)


def run_rates(
    target: Target,
    load: Load,
    rates: Sequence[float],
    tell: Callable[[str], None] | None = None,
) -> Iterator[tuple[dict[str, Any], Driven]]:
    """Figures and measurements of one run after the other.  Prompts differ from run to run, so
    that no run finds those of another in a cache; the same seed gives the same ones.

    tell: is told what is being done, by default on stderr.  Raises ApiError if the server does
    not answer a first request, and ConfigError for a data set that cannot be used.
    """
    said = tell or (lambda text: print(text, file=sys.stderr, flush=True))
    words = target.words()
    if not words.exact and not target.chats:
        said("lengths are those in words: the server has no /tokenize")
    rng = np.random.default_rng(load.seed)
    first = load.data.draw(words, rng, max(load.warmups, 1))
    for ask in first[: max(load.warmups, 1)]:
        target.try_out(ask)
    for rate in rates:
        asks = load.data.draw(words, rng, load.num_prompts)
        due = arrivals(rate, load.burstiness, len(asks), rng)
        said(f"{len(asks)} requests, {rate:g} per second")
        driven = asyncio.run(_drive(target, asks, due.tolist(), load.concurrency))
        yield _result(target, load, rate, driven), driven


async def _drive(
    target: Target, asks: Sequence[Ask], due: Sequence[float], concurrency: int | None
) -> Driven:
    async with target.sender() as send:
        return await drive(lambda index: send(asks[index]), due, concurrency)


def _result(target: Target, load: Load, rate: float, driven: Driven) -> dict[str, Any]:
    return {
        "model_id": target.model,
        "endpoint": target.endpoint,
        "num_prompts": load.num_prompts,
        "request_rate": rate if np.isfinite(rate) else "inf",
        "burstiness": load.burstiness,
        "max_concurrency": load.concurrency,
        "seed": load.seed,
        **figures(driven, load.objectives, load.percentiles),
    }


def with_details(result: Mapping[str, Any], driven: Driven) -> dict[str, Any]:
    """The result with the times and texts of every request."""
    return {**result, **details(driven.results)}
