"""For all tests of the workspace."""

from __future__ import annotations

import signal

from framework.testing.conformance import Suite


def pytest_configure() -> None:
    """What no test may depend on."""
    # Ctrl-C as in a terminal: a shell starts background jobs with it ignored, and children
    # would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Tests are about promises: they hold on a slow and busy machine, too.
    Suite.slowness = 20.0
