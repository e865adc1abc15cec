"""For all tests of the workspace."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Ctrl-C as in a terminal: a shell starts background jobs with it ignored, and children
    would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
