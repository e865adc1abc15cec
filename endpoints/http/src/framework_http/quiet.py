"""uvicorn without its own view of signals."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import uvicorn


class QuietServer(uvicorn.Server):
    """Whoever runs the engine decides what signals mean; uvicorn would catch them, and raise them
    once more at its end."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave the handlers as they are."""
        yield
