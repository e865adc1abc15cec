"""An echo model whose core can be made to hang, for what the front end does about that."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from framework.testing.fake_model import EchoExecutor, EchoOptions

HANGS = "never"
"""A prompt that begins so makes its step hang; the process beats on."""


class TroubledOptions(EchoOptions):
    """gate: while there is a file here, no core can start.  hung: a file that is made when a step
    hangs.  locks: it holds the interpreter's lock, so that the process gives no sign of life."""

    gate: str = ""
    hung: str = ""
    locks: bool = False


class Troubled(EchoExecutor):
    """See the module."""

    Options = TroubledOptions

    def __init__(self, options: BaseModel | None = None) -> None:
        super().__init__(options)
        self._troubles = options if isinstance(options, TroubledOptions) else TroubledOptions()
        self._echo, self.script = self.script, self._next

    def load(self, context: Any) -> Any:
        while self._troubles.gate and Path(self._troubles.gate).exists():
            time.sleep(0.01)
        return super().load(context)

    def _next(self, request: Any, position: int, before: int) -> int:
        prompt = request.tokens[: len(HANGS)].tolist()
        if prompt == list(HANGS.encode()):
            if self._troubles.hung:
                Path(self._troubles.hung).touch()
            if self._troubles.locks:
                all(itertools.repeat(1))
            threading.Event().wait()
        return self._echo(request, position, before)


def troubled_plugin() -> dict[str, str]:
    """What to pass as `plugins`, beside those of the echo model."""
    return {"executor:troubled": f"{__name__}:Troubled"}
