"""Metrics of plugins, from their records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from framework.contracts.stat_logger import Counter, Gauge, Metric
from framework.plugins.records import Record, State


def plugin_metrics(records: Iterable[Record]) -> Iterator[Metric]:
    """Of each plugin that was loaded; of calls, where some were guarded."""
    loaded = [record for record in records if record.cls is not None]
    for record in loaded:
        yield Gauge(
            name="plugin_load_seconds",
            help="How long its import took.",
            value=record.load_seconds or 0.0,
            labels={"plugin": record.key},
        )
    for record in loaded:
        yield Gauge(
            name="plugin_off",
            help="1 when it was switched off after errors.",
            value=float(record.state is State.OFF),
            labels={"plugin": record.key},
        )
    for name, help, attribute in (
        ("plugin_calls", "Guarded calls.", "calls"),
        ("plugin_errors", "Guarded calls that failed.", "errors"),
        ("plugin_seconds", "Seconds in guarded calls.", "seconds"),
    ):
        for record in loaded:
            if not record.usage.calls:
                continue
            value = getattr(record.usage, attribute)
            yield Counter(name=name, help=help, value=value, labels={"plugin": record.key})
