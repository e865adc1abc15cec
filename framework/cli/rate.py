"""How fast tokens come."""

from __future__ import annotations

import time


class Rate:
    """Counts tokens from now on."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._tokens = 0

    def add(self, tokens: int) -> None:
        self._tokens += tokens

    def __str__(self) -> str:
        seconds = time.perf_counter() - self._start
        return f"{self._tokens} tokens in {seconds:.1f} s, {self._tokens / seconds:.1f} tokens/s"
