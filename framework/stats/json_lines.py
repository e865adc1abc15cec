"""Stat logger `json_lines`: one JSON object per snapshot, appended to a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import IO

from pydantic import BaseModel, ConfigDict, Field

from framework.contracts.stat_logger import Metric, Snapshot, StatLogger
from framework.errors import ConfigError


class JsonLinesOptions(BaseModel):
    """Options of `JsonLines`."""

    model_config = ConfigDict(extra="forbid")

    path: Path = Field(description="of the file; it is made if it is not there")
    period: float = Field(
        default=10.0, gt=0, allow_inf_nan=False, description="seconds between two lines"
    )


class JsonLines(StatLogger):
    """A line holds time, uptime, final and metrics, each metric with its type; it is flushed."""

    Options = JsonLinesOptions

    def __init__(self, options: BaseModel | None = None) -> None:
        super().__init__(options)
        assert isinstance(options, JsonLinesOptions)  # a path is required
        self.path, self.period = options.path, options.period
        self._file: IO[str] | None = None

    def start(self, snapshot: Callable[[], Snapshot]) -> None:
        """Raises ConfigError if the file cannot be written."""
        try:
            self._file = self.path.open("a", encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"statistics cannot be written: {error}",
                expected="a file that can be written, in a folder that exists",
                found=str(self.path),
                mend="set --plugin-option stat_logger.json_lines.path=FILE",
            ) from error

    def log(self, snapshot: Snapshot) -> None:
        assert self._file is not None
        metrics = [_metric(metric) for metric in snapshot.metrics]
        row = {
            "time": snapshot.time,
            "uptime": snapshot.uptime,
            "final": snapshot.final,
            "metrics": metrics,
        }
        print(json.dumps(row, separators=(",", ":")), file=self._file, flush=True)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _metric(metric: Metric) -> dict[str, object]:
    row: dict[str, object] = {"type": type(metric).__name__.lower(), **asdict(metric)}
    del row["help"]
    return row
