"""The in-process executor keeps every promise of its kind."""

from framework.testing.conformance.suites.executor import ExecutorSuite


class TestInProcess(ExecutorSuite):
    plugin = "executor:in_process"
