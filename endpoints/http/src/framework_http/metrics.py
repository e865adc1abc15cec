"""`endpoint:metrics`: the engine's statistics as Prometheus reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any

from fastapi import Request, Response

from framework.contracts.endpoint import Endpoint
from framework.contracts.stat_logger import Counter, Gauge, Histogram, Metric

if TYPE_CHECKING:
    import fastapi
    from prometheus_client import CollectorRegistry

    from framework.contracts.service import Service

PREFIX = "framework:"


class Metrics(Endpoint):
    """GET /metrics."""

    def routes(self, service: Service) -> fastapi.APIRouter:
        """See Endpoint."""
        import fastapi
        from prometheus_client import CONTENT_TYPE_LATEST

        router = fastapi.APIRouter()

        @router.get("/metrics")
        async def metrics(request: Request) -> Response:
            # Another host may count nothing.
            counts = getattr(request.app.state, "http_counts", None)
            own = () if counts is None else tuple(counts.read())
            # In a thread: a snapshot waits for the engine's own counting.
            text = await asyncio.to_thread(_text, service, own)
            return Response(text, media_type=CONTENT_TYPE_LATEST)

        return router


def _text(service: Service, more: tuple[Metric, ...]) -> bytes:
    from prometheus_client import generate_latest

    labels = {"model_name": service.model_names[0]}
    return generate_latest(registry_of(lambda: (*service.snapshot().metrics, *more), labels))


def registry_of(
    take: Callable[[], Iterable[Metric]], labels: Mapping[str, str] | None = None
) -> CollectorRegistry:
    """A registry that calls `take` whenever it is asked.  labels: of all metrics."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.registry import Collector

    class Now(Collector):
        def collect(self) -> Iterator[Any]:
            yield from families(take(), labels or {})

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Now())
    return registry


def families(metrics: Iterable[Metric], labels: Mapping[str, str]) -> Iterator[Any]:
    """Metrics as Prometheus's, those of one name together.  labels: of all of them."""
    for name, found in groupby(metrics, key=lambda metric: metric.name):
        yield _family(name, list(found), labels)


def _family(name: str, metrics: list[Metric], common: Mapping[str, str]) -> Any:
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
    names = [*common, *metrics[0].labels]
    family = kinds[type(metrics[0])](PREFIX + name, metrics[0].help, labels=names)
    for metric in metrics:
        labels = [*common.values(), *metric.labels.values()]
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
