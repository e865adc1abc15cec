"""The plugin keeps every promise of its kind."""

from framework.testing.conformance.suites.hooks import HooksSuite


class TestTracing(HooksSuite):
    plugin = "hooks:opentelemetry"
