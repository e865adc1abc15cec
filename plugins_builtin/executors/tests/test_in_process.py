"""The in-process executor keeps every promise of its kind."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from framework.errors import SelectionError
from framework.plugins.policy import Policy, parse_pattern
from framework.plugins.registry import PluginRegistry
from framework.testing.conformance.suites.executor import ExecutorSuite
from framework_executors.in_process import InProcessExecutor


class TestInProcess(ExecutorSuite):
    plugin = "executor:in_process"


def test_runners_that_are_denied_are_not_said_to_be_missing():
    """Who denied the only one would install it again."""
    registry = PluginRegistry(policy=Policy(deny=(parse_pattern("model_runner:*"),)))
    context = SimpleNamespace(registry=registry, choices={})
    with pytest.raises(SelectionError) as caught:
        InProcessExecutor().load(context)
    for record in registry.records("model_runner"):
        assert f"{record.key} is denied: FRAMEWORK_PLUGINS_DENY has" in str(caught.value)
