"""For all tests of the workspace."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from framework.testing.conformance import Suite


def pytest_configure() -> None:
    """What no test may depend on."""
    # Ctrl-C as in a terminal: a shell starts background jobs with it ignored, and children
    # would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Tests are about promises: they hold on a slow and busy machine, too.
    Suite.slowness = 20.0


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """See `tests.spread`."""
    if config.getoption("dist") != "loadfile":
        return None
    from tests.spread import FilesAndFolders

    return FilesAndFolders(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A worker of xdist puts tests in the order in which they are to be begun."""
    if hasattr(config, "workerinput"):
        from tests.spread import in_order

        items[:] = in_order(items)
