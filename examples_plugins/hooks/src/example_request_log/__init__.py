"""Hooks: a line of JSON for each request that ends."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from pydantic import BaseModel, Field

from framework.contracts.hooks import HookSpecs, hookimpl

if TYPE_CHECKING:
    from framework.contracts.messages import EngineInput


LOGGER = logging.getLogger(__name__)


class Options(BaseModel, extra="forbid"):
    """What --plugin-option hooks.request_log.KEY=VALUE can set."""

    file: Path | None = Field(
        default=None, description="Lines are appended to it; without one they go to the log."
    )


class RequestLog(HookSpecs):
    """Keeps when each request came, and writes a line when it ends."""

    Options = Options

    def __init__(self, options: Options | None = None) -> None:
        super().__init__(options)
        self._path = (options or Options()).file
        self._file: TextIO | None = None
        self._begun: dict[str, tuple[float, int]] = {}

    @hookimpl
    def engine_started(self) -> None:
        if self._path is not None:
            self._file = self._path.open("a", encoding="utf-8")

    @hookimpl
    def request_added(self, request: EngineInput) -> None:
        self._begun[request.request_id] = time.monotonic(), len(request.tokens)

    @hookimpl
    def request_finished(self, request_id: str, reason: str, num_output_tokens: int) -> None:
        begun, prompt = self._begun.pop(request_id, (time.monotonic(), 0))
        line = {
            "request": request_id,
            "reason": reason,
            "prompt": prompt,
            "output": num_output_tokens,
            "seconds": round(time.monotonic() - begun, 6),
        }
        if self._file is None:
            LOGGER.info("%s", json.dumps(line))
        else:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()

    @hookimpl
    def engine_closed(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
