"""What a collector gets to know of requests."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from framework.contracts.sampling import SamplingParams
from framework.engine.async_engine import AsyncEngine
from framework.engine.request_options import RequestOptions
from framework.testing.fake_model import MODEL, fake_plugins
from framework_opentelemetry import ENDPOINTS, Tracing

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
LATENCIES = {
    f"gen_ai.latency.{name}"
    for name in (
        "time_in_queue",
        "time_in_model_prefill",
        "time_in_model_decode",
        "time_to_first_token",
        "e2e",
    )
}


class InMemory(Tracing):
    """Keeps the spans."""

    kept = InMemorySpanExporter()

    def exporter(self):
        return self.kept


def spans(prompt, sampling, options=None, **settings):
    """Of one request."""

    async def run():
        plugins = {**fake_plugins(), "hooks:memory": f"{__name__}:InMemory"}
        async with AsyncEngine(
            MODEL, in_process=True, plugins=plugins, executor="echo", **settings
        ) as engine:
            async for _ in engine.generate(prompt, sampling, options):
                pass

    InMemory.kept = InMemorySpanExporter()
    asyncio.run(run())
    return InMemory.kept.get_finished_spans()


def test_a_span_tells_of_tokens_and_times_and_is_a_child_of_the_clients():
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    options = RequestOptions(request_id="mine", trace_headers=headers)
    (span,) = spans("hello", SamplingParams(max_tokens=9), options)
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == PARENT
    assert span.name == "llm_request"
    found = dict(span.attributes)
    assert found["gen_ai.request.id"] == "mine"
    assert found["gen_ai.usage.prompt_tokens"] == 5
    assert found["gen_ai.usage.completion_tokens"] == 6
    assert found["gen_ai.response.finish_reasons"] == ("stop",)
    assert set(found) >= LATENCIES
    parts = ("time_in_queue", "time_in_model_prefill", "time_in_model_decode")
    whole = sum(found[f"gen_ai.latency.{part}"] for part in parts)
    assert whole == pytest.approx(found["gen_ai.latency.e2e"])
    assert span.end_time >= span.start_time


def test_each_output_has_a_span_and_without_a_header_a_trace_of_its_own():
    found = spans("ab", SamplingParams(max_tokens=9, n=2, temperature=1))
    assert [span.parent for span in found] == [None, None]
    assert len({span.context.trace_id for span in found}) == 2


def test_a_request_that_fails_is_marked():
    options = RequestOptions(deadline=1e-9)
    (span,) = spans("hello", SamplingParams(max_tokens=9), options)
    assert span.status.status_code is StatusCode.ERROR
    assert "gen_ai.latency.time_to_first_token" not in span.attributes


def test_without_an_endpoint_nothing_is_traced(monkeypatch):
    for name in ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    assert Tracing().exporter() is None
    monkeypatch.setenv(ENDPOINTS[1], "http://localhost:4318")
    exporter = Tracing().exporter()
    assert exporter is not None
    exporter.shutdown()
