"""Worker processes that are shared by all who need one for a moment."""

from __future__ import annotations

import queue
from collections.abc import Callable

from framework.contracts.participant import EngineContext
from framework.contracts.structured_output import Grammar, Vocabulary
from framework.plugins.children import hand_over
from framework.plugins.kinds import Scope
from framework_structured.options import StructuredOptions
from framework_structured.process import WorkerProcess


class Workers:
    """As many as the options say; the one that was used last is used first, so that further
    processes start only where several are needed at one time.  Called from any thread."""

    def __init__(
        self,
        context: EngineContext,
        options: StructuredOptions,
        vocabulary: Callable[[], Vocabulary],
    ) -> None:
        def handover() -> bytes:
            return hand_over(context.registry, (Scope.ENGINE_CORE,), context.choices)

        self._options = options
        self._all = [
            WorkerProcess(handover, options.worker_memory, vocabulary)
            for _ in range(options.workers)
        ]
        self._free: queue.LifoQueue[WorkerProcess] = queue.LifoQueue()
        for worker in self._all:
            self._free.put(worker)

    def check(self, backend: str, grammar: Grammar) -> None:
        """See `WorkerProcess.check`."""
        worker = self._free.get()
        try:
            worker.check(backend, grammar, self._options.check_timeout)
        finally:
            self._free.put(worker)

    def compile(self, backend: str, grammar: Grammar) -> bytes:
        """See `WorkerProcess.compile`."""
        worker = self._free.get()
        try:
            return worker.compile(backend, grammar, self._options.compile_timeout)
        finally:
            self._free.put(worker)

    def close(self) -> None:
        """End all processes, whatever they do."""
        for worker in self._all:
            worker.close()
