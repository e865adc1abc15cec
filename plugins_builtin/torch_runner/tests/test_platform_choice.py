"""Which platform runs, and what is said where none can."""

from __future__ import annotations

import pytest

from framework.errors import SelectionError
from framework.plugins.policy import Policy, parse_pattern
from framework.plugins.registry import PluginRegistry
from framework_torch.selecting import choose_platform


def test_platforms_that_are_denied_are_not_said_to_be_missing():
    registry = PluginRegistry(policy=Policy(deny=(parse_pattern("platform:*"),)))
    with pytest.raises(SelectionError, match="platform:cpu@framework-plugin-cpu is denied"):
        choose_platform(registry, None)
