"""What an operator may do with an engine in this process."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from framework.engine.build import Engine


class OperatedLLM:
    """The part of `LLM` that is about the engine and not about requests."""

    _lock: threading.RLock
    _engine: Engine

    def reset_prefix_cache(self) -> bool:
        """Forget all cached prefixes; False if the engine could not."""
        with self._lock:
            return self._engine.client.reset_prefix_cache()

    def sleep(self, level: int = 1) -> None:
        """See EngineCore.sleep.  Whoever wants an output meanwhile gets OverloadedError."""
        with self._lock:
            self._engine.client.sleep(level)

    def wake_up(self) -> None:
        """See EngineCore.wake_up."""
        with self._lock:
            self._engine.client.wake_up()

    @property
    def is_sleeping(self) -> bool:
        """Whether `wake_up` is due."""
        return self._engine.client.core.sleeping > 0

    def start_profile(self) -> None:
        """Trace all steps from now on, which are slower for it.  Raises UnsupportedError if the
        model runner has no profiler or nowhere to write to, InputError if it runs already."""
        with self._lock:
            self._engine.client.start_profile()

    def stop_profile(self) -> Mapping[str, Any]:
        """End the trace; what the runner tells of it, such as the file where it lies.  Raises
        InputError if none runs."""
        with self._lock:
            return self._engine.client.stop_profile()
