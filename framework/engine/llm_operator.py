"""What an operator may do with an engine in this process."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from framework.engine.adapters import LOADING, POLL_SECONDS, check_loaded, load_arguments

if TYPE_CHECKING:
    from framework.engine.adapters import LoadedAdapter
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

    def load_adapter(
        self,
        name: str,
        path: str | os.PathLike[str],
        *,
        pinned: bool = False,
        load_inplace: bool = False,
    ) -> None:
        """Load a LoRA adapter, so that `lora_request=name` computes with it.

        path: its folder on this machine.  pinned: it stays in memory, while others make place for
        those that are asked for.  load_inplace: another of this name goes, once its requests have
        ended.  Raises InputError for one that cannot be used, with the reason; nothing has changed
        then.  UnsupportedError without enable_lora.
        """
        with self._lock:
            adapters, control = self._engine.adapters, self._engine.client.control
            entry = adapters.begin(name, path, pinned=pinned, again=load_inplace)
            server = adapters.participant
            try:
                told = control(server, "load", load_arguments(entry))
                while told["state"] == LOADING:
                    time.sleep(POLL_SECONDS)
                    told = control(server, "state", {"id": entry.number})
                check_loaded(entry, told)
                before = adapters.add(entry, again=load_inplace)
            except BaseException:
                control(server, "unload", {"id": entry.number})
                raise
            if before is not None:
                control(server, "unload", {"id": before.number})

    def unload_adapter(self, name: str) -> None:
        """Requests may name it no more; those that do already are served.  Raises InputError for a
        name that is not loaded."""
        with self._lock:
            entry = self._engine.adapters.remove(name)
            server = self._engine.adapters.participant
            self._engine.client.control(server, "unload", {"id": entry.number})

    def pin_adapter(self, name: str, pinned: bool = True) -> None:
        """Whether it stays in memory while others make place.  Raises InputError for a name that is
        not loaded, and if no place were left for any other."""
        with self._lock:
            adapters = self._engine.adapters
            entry = adapters.find(name)
            asked = {"id": entry.number, "pinned": pinned}
            self._engine.client.control(adapters.participant, "pin", asked)
            adapters.pin(name, pinned)

    def list_adapters(self) -> list[LoadedAdapter]:
        """Those that requests may name, in the order in which they were loaded."""
        return list(self._engine.adapters)

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
