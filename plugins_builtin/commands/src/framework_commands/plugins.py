"""The plugins: each is one function, which is imported when it is called."""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, ClassVar

from framework.contracts.command import Command

if TYPE_CHECKING:
    from framework.contracts.command import Call


class Function(Command):
    """function: "module:name" of a function with typer's annotations."""

    function: ClassVar[str]

    def run(self, call: Call) -> int:
        """See Command."""
        from framework.cli.commands import run_typer

        # A line for each request, where -v asks for what was chosen.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        module, _, name = self.function.partition(":")
        return run_typer(getattr(importlib.import_module(module), name), call)


class Chat(Function):
    """A conversation in the terminal."""

    function = "framework_commands.chat:chat"


class Complete(Function):
    """Continues texts."""

    function = "framework_commands.complete:complete"


class BenchServe(Function):
    """Measures a server."""

    function = "framework_commands.bench.serve:serve"


class RunBatch(Function):
    """Works off a file of requests."""

    function = "framework_commands.batch.command:run_batch"


class CollectEnv(Function):
    """Describes the machine and what is installed."""

    function = "framework_commands.collect_env:collect_env"


class BenchThroughput(Function):
    """Measures a model that is asked everything at once."""

    function = "framework_commands.bench.offline:throughput"


class BenchLatency(Function):
    """Measures single batches."""

    function = "framework_commands.bench.offline:latency"


class BenchTune(Function):
    """Finds settings of a server."""

    function = "framework_commands.bench.tune:tune"
