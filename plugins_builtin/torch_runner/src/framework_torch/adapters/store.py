"""Adapters in memory, read in a thread of their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from framework.contracts.base import Supported
from framework.contracts.lora import Adapter, AdapterFormat, AdapterLimits, AdapterQuery
from framework.errors import FrameworkError, InputError, ModelError
from framework.plugins.blame import blaming, expect, in_one_line, told
from framework.plugins.selection import Row, ask_all, explain_table
from framework.shown import shown

if TYPE_CHECKING:
    from framework.plugins.registry import PluginRegistry
    from framework_torch.adapters.fitting import Fitted

KIND = "lora"


class AdapterStore:
    """registry: where formats are found.  fit: whether an adapter suits the model, and what it
    becomes; called in the thread, as all that takes time.  Everything else is the runner's
    thread's.  How many adapters there may be, whoever asks for them decides."""

    def __init__(
        self,
        registry: PluginRegistry,
        limits: AdapterLimits,
        fit: Callable[[Adapter], Fitted],
    ) -> None:
        self.limits = limits
        self._registry, self._fit = registry, fit
        self._futures: dict[int, Future[Fitted]] = {}
        self._thread: ThreadPoolExecutor | None = None

    def control(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """See ModelRunner.control.  Raises InputError for arguments that say nothing."""
        action, number = arguments.get("action"), arguments.get("id")
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise _bad("id", "a load id, an integer from 0 on", number)
        match action:
            case "load":
                self._load(number, arguments.get("root"))
            case "drop":
                future = self._futures.pop(number, None)
                if future is not None:
                    future.cancel()
            case "state":
                pass
            case _:
                raise _bad("action", "load, state or drop", action)
        return self._state(number)

    def get(self, number: int) -> Fitted | None:
        """The adapter of a load id, if it is ready."""
        future = self._futures.get(number)
        if future is None or not future.done() or future.cancelled() or future.exception():
            return None
        return future.result()

    def close(self) -> None:
        """End the thread; may be called twice."""
        thread, self._thread = self._thread, None
        self._futures.clear()
        if thread is not None:
            thread.shutdown(wait=True, cancel_futures=True)

    def _state(self, number: int) -> Mapping[str, Any]:
        future = self._futures.get(number)
        if future is None:
            return {"state": "absent"}
        if not future.done():
            return {"state": "loading"}
        error = future.exception()
        if error is not None:
            why = in_one_line(error) if isinstance(error, FrameworkError) else told(error)
            return {"state": "failed", "reason": why}
        fitted = future.result()
        return {
            "state": "ready",
            "digest": fitted.digest,
            "rank": fitted.rank,
            "num_bytes": fitted.num_bytes,
        }

    def _load(self, number: int, root: object) -> None:
        """Formats are asked here, as the registry is for one thread; the files are read there."""
        if not isinstance(root, str):
            raise _bad("root", "a folder of this machine", root)
        present = self._futures.get(number)
        if present is not None and (not present.done() or present.exception() is None):
            return
        try:
            rows = self._formats(Path(root))
        except (FrameworkError, OSError, ValueError) as error:  # ValueError: a NUL in the path
            failed: Future[Fitted] = Future()
            failed.set_exception(error if isinstance(error, FrameworkError) else _gone(root, error))
            self._futures[number] = failed
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="framework-adapters")
        self._futures[number] = self._thread.submit(self._read, Path(root), rows)

    def _formats(self, root: Path) -> Sequence[Row]:
        """Those that take the folder, in order.  Raises ModelError if none does."""
        query = AdapterQuery(root=root, files=frozenset(os.listdir(root)))
        table = ask_all(self._registry, KIND, query)
        rows = [row for row in table if isinstance(row.answer, Supported)]
        if not rows:
            raise ModelError(
                f"{root} holds no adapter that an installed format can read",
                expected="a folder that one of the plugins of the kind lora takes",
                found=" ".join(explain_table(table).split()),
                mend="name the folder of an adapter; PEFT's has adapter_config.json and "
                "adapter_model.safetensors",
            )
        self._registry.find(KIND, rows[0].record.name)  # raises for a second claim to the name
        return rows

    def _read(self, root: Path, rows: Sequence[Row]) -> Fitted:
        reader = cast("AdapterFormat", rows[0].instance)
        with blaming(reader, f"reading the adapter in {root}"):
            adapter = reader.read(root)
        return self._fit(expect(reader, "read", adapter, Adapter))


def _gone(root: str, error: Exception) -> ModelError:
    why = error.strerror if isinstance(error, OSError) else error
    return ModelError(
        f"the folder of the adapter cannot be read: {shown(root):.200}",
        expected="a folder of this machine with the files of an adapter",
        found=why,
        mend="correct the path, or its permissions",
    )


def _bad(parameter: str, expected: str, found: object) -> InputError:
    return InputError(
        f"{parameter} is invalid", parameter=parameter, expected=expected, found=shown(found)
    )
