"""Kind `executor`: where model runners run.

To the core an executor *is* a runner: it fans plans out to its ranks and merges what they
answer (the number of pages is the least over ranks).  So the contract is the same.
"""

from __future__ import annotations

from typing import ClassVar

from framework.contracts.model_runner import ModelRunner


class Executor(ModelRunner):
    """A runner made of runners."""

    kind: ClassVar[str] = "executor"
