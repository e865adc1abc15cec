"""Kind `stat_logger`: takes the engine's statistics somewhere: a log, a file, a monitoring system.

Active are those that the operator named (`stat_loggers`).  Each has a thread of its own, which
takes a snapshot at every `period` and a last one when the engine is closed; a logger that waits for
a disk or a network delays neither the engine nor other loggers.  Order of calls: `start`, any
number of `log`, `close`; one at a time.

An error in `start` stops the start of the engine.  Later ones are logged under the plugin's name,
and after `plugin_error_limit` of them in a row the logger is switched off.

Metrics have vLLM's names without its prefix, so that its dashboards serve after a replacement:

    gauges      num_requests_running, num_requests_waiting, kv_cache_usage_perc (0 to 1),
                cache_config_info (1; its labels say it)
    counters    prefix_cache_queries, prefix_cache_hits, num_preemptions, prompt_tokens,
                generation_tokens, request_success (label finished_reason), core_restarts;
                with the label tenant tenant_requests, tenant_prompt_tokens,
                tenant_generation_tokens; once there were drafts spec_decode_num_drafts,
                spec_decode_num_draft_tokens, spec_decode_num_accepted_tokens and, with the label
                position, spec_decode_num_accepted_tokens_per_pos
    histograms  time_to_first_token_seconds, inter_token_latency_seconds,
                e2e_request_latency_seconds, request_queue_time_seconds,
                request_prefill_time_seconds, request_decode_time_seconds, iteration_tokens_total

and, with the label `plugin` ("kind:name@distribution"), of each plugin that was loaded: the gauges
plugin_load_seconds and plugin_off (1 when it was switched off), and of calls that disturb nobody
(hooks, stat loggers) the counters plugin_calls, plugin_errors, plugin_seconds.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from framework.contracts.base import Contract


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """A number that only rises.  help: one sentence."""

    name: str
    help: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """A number as it is now."""

    name: str
    help: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """How often values fell where, since the start.

    bounds: rising.  counts: one more than bounds; counts[i] values were at most bounds[i] and
    more than bounds[i - 1], the last one's were more than all bounds.  sum: of all values.
    """

    name: str
    help: str
    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Number of values."""
        return sum(self.counts)


Metric = Counter | Gauge | Histogram


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The statistics at one moment.

    time: seconds since 1970.  uptime: seconds since the engine was started.  final: nothing
    comes after it.  metrics: those of one name stand together.
    """

    time: float
    uptime: float
    metrics: tuple[Metric, ...]
    final: bool = False

    def get(self, name: str, **labels: str) -> Metric:
        """The metric with this name and these labels.  Raises KeyError."""
        for metric in self.metrics:
            if metric.name == name and dict(metric.labels) == labels:
                return metric
        raise KeyError(name, labels)

    def value(self, name: str, **labels: str) -> float:
        """Of a counter or a gauge; the sum of a histogram.  Raises KeyError."""
        metric = self.get(name, **labels)
        return metric.sum if isinstance(metric, Histogram) else metric.value


class StatLogger(Contract):
    """period: seconds between two calls of `log`; None: only the last one is made, for a logger
    that is asked from outside and takes its own snapshots."""

    kind: ClassVar[str] = "stat_logger"
    period: float | None = 10.0

    def start(self, snapshot: Callable[[], Snapshot]) -> None:
        """The engine is ready.  snapshot: takes one now; from any thread, at any time."""
        return

    @abstractmethod
    def log(self, snapshot: Snapshot) -> None:
        """Take it in, and change nothing of it.  May block, up to the period.  Called in a thread
        of its own, which is not that of `start`; more metrics may come with a later release."""

    def close(self) -> None:
        """Give files, connections and threads back.  Also without a start, and twice."""
        return
