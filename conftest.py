"""For all tests of the workspace."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Generator, Iterator
from typing import Any

import hypothesis
import pytest

from framework.testing.conformance import Suite
from framework.testing.conformance.forks import ForkServer

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A slow machine is no fault, and in `make test` the examples are the same ones each time;
# `make test-long` draws others.
PATIENT = hypothesis.settings(
    deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile("random", PATIENT)
hypothesis.settings.register_profile("same", PATIENT, derandomize=True, database=None)
hypothesis.settings.load_profile("same")


def pytest_configure() -> None:
    """What no test may depend on."""
    # Ctrl-C as in a terminal: a shell starts background jobs with it ignored, and children
    # would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Tests are about promises: they hold on a slow and busy machine, too.
    Suite.slowness = 20.0
    if hasattr(os, "pidfd_open"):
        Suite.forks = ForkServer()


def pytest_unconfigure() -> None:
    """End what tests shared."""
    if Suite.forks is not None:
        Suite.forks.close()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported stays, and is not searched for garbage again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


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


@pytest.fixture(autouse=True)
def process_as_it_was() -> Iterator[None]:
    """Each test finds the process as it would alone: one that changes it for those after it fails.
    What the command line does to a process of its own is undone: where logs and faults go."""
    root, before = logging.getLogger(), _of_the_process()
    handlers, level, hook = list(root.handlers), root.level, sys.excepthook
    yield
    root.handlers[:] = [
        *(one for one in root.handlers if _of_pytest(one)),
        *(one for one in handlers if not _of_pytest(one)),
    ]
    root.setLevel(level)
    sys.excepthook = hook
    now = _of_the_process()
    left = [f"{name}: {was} became {now[name]}" for name, was in before.items() if now[name] != was]
    assert not left, f"it leaves the process changed: {'; '.join(left)}"


def _of_pytest(handler: logging.Handler) -> bool:
    """It comes and goes with each part of a test."""
    return type(handler).__module__.startswith("_pytest")


def _of_the_process() -> dict[str, object]:
    """What tests share that run in one process."""
    found: dict[str, object] = {
        "the working directory": os.getcwd(),
        "our environment": {k: v for k, v in os.environ.items() if k.startswith("FRAMEWORK_")},
        "signal handlers": [signal.getsignal(number) for number in SIGNALS],
        "the switch that turns logging off": logging.root.manager.disable,
    }
    torch = sys.modules.get("torch")
    if torch is not None:
        found["torch"] = (torch.get_num_threads(), torch.get_default_dtype())
    return found
