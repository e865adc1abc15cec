"""The highest load at which a server keeps its objectives: a bounded search."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from framework.errors import ConfigError

Setting = Mapping[str, int]
Measure = Callable[[float], Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run: what was set, what was sent, and what came of it.

    rate: requests per second that were sent, inf is all at once.  served: that were answered.
    attained: part of the requests that met every objective.  fine: it is enough of them.
    """

    setting: Setting
    rate: float
    served: float
    attained: float
    fine: bool
    result: Mapping[str, Any]

    @property
    def sustained(self) -> float:
        """Requests per second that this shows to be possible; 0 unless it is fine."""
        return min(self.rate, self.served) if self.fine else 0.0


def search_rate(setting: Setting, measure: Measure, enough: float, rounds: int) -> Iterator[Trial]:
    """Trials of one setting, at most `rounds` + 1.

    All at once first: what is answered then is the most that can be.  If that breaks the
    objectives, the rate is halved in on between what is known to be fine and what is not.
    """
    first = _trial(setting, math.inf, measure, enough)
    yield first
    if first.fine or first.served <= 0:
        return
    low, high, rate = 0.0, math.inf, first.served
    for _ in range(rounds):
        trial = _trial(setting, rate, measure, enough)
        yield trial
        if trial.fine:
            low = rate
        else:
            high = rate
        if math.isinf(high):  # as fast as it can be, and fine
            return
        rate = (low + high) / 2


def _trial(setting: Setting, rate: float, measure: Measure, enough: float) -> Trial:
    result = measure(rate)
    attained = float(result["goodput_fraction"])
    return Trial(
        setting=setting,
        rate=rate,
        served=float(result["request_throughput"]),
        attained=attained,
        fine=attained >= enough,
        result=result,
    )


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """The one that sustains most, the first of equals; None if nothing is fine."""
    fine = [trial for trial in trials if trial.fine]
    return max(fine, key=lambda trial: trial.sustained, default=None)


def settings_of(axes: Mapping[str, Sequence[int]]) -> list[dict[str, int]]:
    """Every combination."""
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def parse_values(text: str, option: str) -> list[int]:
    """Read "8,16".  Raises ConfigError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts) or len(set(parts)) != len(
        parts
    ):
        raise ConfigError(
            f"{option} is invalid", expected="N[,N...], different integers > 0", found=repr(text)
        )
    return [int(part) for part in parts]
