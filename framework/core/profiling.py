"""The runner's profiler, for an operator who wants a trace of what runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from framework.errors import InputError, UnsupportedError
from framework.plugins.blame import blaming

if TYPE_CHECKING:
    from framework.contracts.model_runner import ModelRunner

OP = "profile"


class Profiling:
    """Begins and ends traces.  ops: operations that the runner declared."""

    def __init__(self, runner: ModelRunner, ops: frozenset[str]) -> None:
        self._runner, self._ops = runner, ops
        self._runs = False

    def start(self) -> None:
        """Trace the steps from now on.  Raises UnsupportedError if the runner cannot, InputError
        if it does so already."""
        if OP not in self._ops:
            raise UnsupportedError(
                "the model runner has no profiler",
                expected=f"one that declares the operation {OP!r}",
                found=f"operations: {', '.join(sorted(self._ops)) or 'none'}",
                mend="choose a model runner that declares it, such as torch",
            )
        if self._runs:
            raise InputError(
                "a profile runs already", found="a second start", mend="stop the first one"
            )
        with blaming(self._runner, "starting a profile"):
            self._runner.control(OP, {"action": "begin", "trace": True})
        self._runs = True

    def stop(self) -> Mapping[str, Any]:
        """End the trace, and tell where it is.  Raises InputError if there is none; one that could
        not be written is over as well."""
        if not self._runs:
            raise InputError("no profile runs", found="a stop", mend="start one")
        self._runs = False
        with blaming(self._runner, "writing a profile"):
            return dict(self._runner.control(OP, {"action": "end"}))
