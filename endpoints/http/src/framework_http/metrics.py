"""`endpoint:metrics`: the engine's statistics as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

from framework.contracts.endpoint import Endpoint
from framework.contracts.stat_logger import Counter, Gauge, Histogram, Metric, Snapshot

if TYPE_CHECKING:
    import fastapi
    from prometheus_client.registry import Collector

    from framework.contracts.service import Service

PREFIX = "framework:"


class Metrics(Endpoint):
    """GET /metrics."""

    def routes(self, service: Service) -> fastapi.APIRouter:
        """See Endpoint."""
        import fastapi
        from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

        registry = CollectorRegistry(auto_describe=False)
        registry.register(_collector(service))
        router = fastapi.APIRouter()

        # In a thread of the server's: a snapshot waits for the engine's own counting.
        @router.get("/metrics")
        def metrics() -> fastapi.Response:
            return fastapi.Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

        return router


def _collector(service: Service) -> Collector:
    from prometheus_client.registry import Collector

    class FromEngine(Collector):
        """Takes a snapshot whenever it is asked."""

        def collect(self) -> Iterator[Any]:
            yield from families(service.snapshot(), service.model_names[0])

    return FromEngine()


def families(snapshot: Snapshot, model: str) -> Iterator[Any]:
    """The metrics of a snapshot, those of one name together, each with the label model_name."""
    for name, metrics in groupby(snapshot.metrics, key=lambda metric: metric.name):
        yield _family(name, list(metrics), model)


def _family(name: str, metrics: list[Metric], model: str) -> Any:
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    kinds = {
        Counter: CounterMetricFamily,
        Gauge: GaugeMetricFamily,
        Histogram: HistogramMetricFamily,
    }
    names = ["model_name", *metrics[0].labels]
    family = kinds[type(metrics[0])](PREFIX + name, metrics[0].help, labels=names)
    for metric in metrics:
        labels = [model, *metric.labels.values()]
        if isinstance(metric, Histogram):
            family.add_metric(labels, _cumulative(metric), metric.sum)
        else:
            family.add_metric(labels, metric.value)
    return family


def _cumulative(histogram: Histogram) -> list[tuple[str, float]]:
    """Prometheus counts all values up to a bound, not those between two."""
    total, found = 0, []
    bounds = [*map(str, histogram.bounds), "+Inf"]
    for bound, count in zip(bounds, histogram.counts, strict=True):
        total += count
        found.append((bound, float(total)))
    return found
