"""Hooks `opentelemetry`: a span for each request."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from pydantic import BaseModel, ConfigDict, Field

from framework.contracts.hooks import HookSpecs, hookimpl

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span, Tracer

    from framework.contracts.messages import EngineInput

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Variables of OpenTelemetry's own that say where spans go."""


class TracingOptions(BaseModel):
    """Options of `Tracing`."""

    model_config = ConfigDict(extra="forbid")

    endpoint: str | None = Field(
        default=None,
        description="Where spans go, such as http://localhost:4318/v1/traces; without one, and "
        "without OTEL_EXPORTER_OTLP_ENDPOINT in the environment, nothing is traced.",
    )
    service_name: str = Field(default="framework", description="What the spans are known under.")


@dataclass(slots=True)
class _Course:
    """Of a request that runs, in seconds of a clock that rises."""

    span: Span
    added: float
    first: float | None = None


class Tracing(HookSpecs):
    """Spans are begun and ended on the front end's thread and sent from another."""

    Options = TracingOptions

    def __init__(self, options: BaseModel | None = None) -> None:
        super().__init__(options)
        self._options = cast("TracingOptions", options or TracingOptions())
        self._provider: TracerProvider | None = None
        self._tracer: Tracer | None = None
        self._running: dict[str, _Course] = {}

    def exporter(self) -> SpanExporter | None:
        """What takes the spans; None: nothing is traced."""
        if self._options.endpoint is None and not any(os.environ.get(name) for name in ENDPOINTS):
            return None
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter(endpoint=self._options.endpoint)

    @hookimpl
    def engine_started(self) -> None:
        """Begin to trace, if there is an endpoint."""
        exporter = self.exporter()
        if exporter is None:
            return
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        resource = Resource.create({"service.name": self._options.service_name})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("framework")

    @hookimpl
    def request_added(self, request: EngineInput) -> None:
        """A child of the client's span, if its headers name one."""
        if self._tracer is None:
            return
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        sampling = request.sampling
        span = self._tracer.start_span(
            "llm_request",
            context=TraceContextTextMapPropagator().extract(dict(request.trace_headers)),
            kind=SpanKind.SERVER,
            attributes={
                "gen_ai.request.id": request.client_id,
                "gen_ai.usage.prompt_tokens": len(request.tokens),
                "gen_ai.request.temperature": sampling.temperature,
                "gen_ai.request.top_p": sampling.top_p,
            },
        )
        self._running[request.request_id] = _Course(span, time.monotonic())

    @hookimpl
    def request_first_token(self, request_id: str, waited: float) -> None:
        """The queue and the prefill are over."""
        course = self._running.get(request_id)
        if course is None:
            return
        course.first = time.monotonic()
        whole = course.first - course.added
        course.span.set_attributes(
            {
                "gen_ai.latency.time_in_queue": waited,
                "gen_ai.latency.time_in_model_prefill": max(whole - waited, 0.0),
                "gen_ai.latency.time_to_first_token": whole,
            }
        )

    @hookimpl
    def request_finished(self, request_id: str, reason: str, num_output_tokens: int) -> None:
        """The span ends with the request."""
        course = self._running.pop(request_id, None)
        if course is None:
            return
        now, span = time.monotonic(), course.span
        span.set_attribute("gen_ai.usage.completion_tokens", num_output_tokens)
        span.set_attribute("gen_ai.response.finish_reasons", [reason])
        span.set_attribute("gen_ai.latency.e2e", now - course.added)
        if course.first is not None:
            span.set_attribute("gen_ai.latency.time_in_model_decode", now - course.first)
        if reason == "error":
            from opentelemetry.trace import Status, StatusCode

            span.set_status(Status(StatusCode.ERROR))
        span.end()

    @hookimpl
    def engine_closed(self) -> None:
        """Send what is left."""
        for course in self._running.values():
            course.span.end()
        self._running.clear()
        if self._provider is not None:
            self._provider.shutdown()
            self._provider = self._tracer = None
