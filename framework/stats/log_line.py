"""Stat logger `log`: a line in the log, with rates since the line before."""

from __future__ import annotations

import logging

from pydantic import BaseModel, ConfigDict, Field

from framework.contracts.stat_logger import Counter, Snapshot, StatLogger

log = logging.getLogger("framework.stats")


class LogLineOptions(BaseModel):
    """Options of `LogLine`."""

    model_config = ConfigDict(extra="forbid")

    period: float = Field(
        default=10.0, gt=0, allow_inf_nan=False, description="seconds between two lines"
    )


class LogLine(StatLogger):
    """Says nothing while nothing happens; the last line is about the whole run."""

    Options = LogLineOptions

    def __init__(self, options: BaseModel | None = None) -> None:
        super().__init__(options)
        chosen = options if isinstance(options, LogLineOptions) else LogLineOptions()
        self.period = chosen.period
        self._before: Snapshot | None = None

    def log(self, snapshot: Snapshot) -> None:
        before, self._before = self._before, snapshot
        if snapshot.final:
            log.info("%s", _line(snapshot, None))
        elif before is None or _work(snapshot) != _work(before) or _present(snapshot):
            log.info("%s", _line(snapshot, before))


def _work(snapshot: Snapshot) -> tuple[float, ...]:
    """What changes when something was done."""
    return tuple(metric.value for metric in snapshot.metrics if isinstance(metric, Counter))


def _present(snapshot: Snapshot) -> bool:
    waiting = snapshot.value("num_requests_waiting")
    return snapshot.value("num_requests_running") + waiting > 0


def _line(snapshot: Snapshot, before: Snapshot | None) -> str:
    seconds = snapshot.uptime - (before.uptime if before else 0.0)

    def since(name: str) -> float:
        return snapshot.value(name) - (before.value(name) if before else 0.0)

    queries, hits = since("prefix_cache_queries"), since("prefix_cache_hits")
    parts = [
        f"prompt {since('prompt_tokens') / seconds:.1f} tokens/s" if seconds else "",
        f"generation {since('generation_tokens') / seconds:.1f} tokens/s" if seconds else "",
        f"running {snapshot.value('num_requests_running'):.0f}",
        f"waiting {snapshot.value('num_requests_waiting'):.0f}",
        f"cache {snapshot.value('kv_cache_usage_perc'):.1%}",
        f"prefix hits {hits / queries:.1%}" if queries else "",
        f"preempted {since('num_preemptions'):.0f}" if since("num_preemptions") else "",
    ]
    head = f"all {seconds:.1f} s" if before is None else f"last {seconds:.1f} s"
    return f"{head}: {', '.join(part for part in parts if part)}"
