"""Kind `executor`: where model runners run.

To the core an executor *is* a runner: it fans plans out to its ranks and merges what they
answer (the number of pages is the least over ranks).  So the contract is the same.  It makes
its runner with `framework.plugins.runners.create_runner(context)`: the one that the operator
chose, or the best ranked.  One that wraps another executor may make that with
`context.registry.create("executor", NAME)`; `close` must work when `load` was never called.
"""

from __future__ import annotations

from typing import ClassVar

from framework.contracts.model_runner import ModelRunner


class Executor(ModelRunner):
    """A runner made of runners."""

    kind: ClassVar[str] = "executor"
