"""A stat logger: sends metrics to a StatsD server, in datagrams that nobody waits for.

Gauges go as they are, counters as what was added since the last time; of a histogram the number
and the sum of its values are two counters.  Labels become tags, as DogStatsD writes them.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

from pydantic import BaseModel, Field

from framework.contracts.stat_logger import Gauge, Histogram, Metric, Snapshot, StatLogger

DATAGRAM = 1400  # bytes that pass through most networks in one piece


class Options(BaseModel, extra="forbid"):
    """What --plugin-option stat_logger.statsd.KEY=VALUE can set."""

    host: str = Field(default="127.0.0.1", description="Where the server is.")
    port: int = Field(default=8125, ge=1, le=65535, description="Its UDP port.")
    prefix: str = Field(default="framework.", description="Put before each name.")
    period: float = Field(default=10.0, gt=0, description="Seconds between two reports.")


class StatsD(StatLogger):
    """Reports every `period` seconds, and at the end."""

    Options = Options

    def __init__(self, options: Options | None = None) -> None:
        super().__init__(options)
        self._to = options or Options()
        self.period = self._to.period
        self._socket: socket.socket | None = None
        self._before: dict[str, float] = {}

    def start(self, snapshot: Callable[[], Snapshot]) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def log(self, snapshot: Snapshot) -> None:
        datagram = b""
        for metric in snapshot.metrics:
            for line in self._lines(metric):
                if datagram and len(datagram) + len(line) >= DATAGRAM:
                    self._send(datagram)
                    datagram = b""
                datagram += line + b"\n"
        self._send(datagram)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _lines(self, metric: Metric) -> Iterator[bytes]:
        tags = ",".join(f"{name}:{value}" for name, value in sorted(metric.labels.items()))
        end = f"|#{tags}" if tags else ""
        name = self._to.prefix + metric.name
        if isinstance(metric, Gauge):
            yield f"{name}:{metric.value:g}|g{end}".encode()
            return
        if isinstance(metric, Histogram):
            counts = {f"{name}.sum": metric.sum, f"{name}.count": float(metric.count)}
        else:
            counts = {name: metric.value}
        for key, value in counts.items():
            added = value - self._before.get(key + end, 0.0)
            self._before[key + end] = value
            if added:
                yield f"{key}:{added:g}|c{end}".encode()

    def _send(self, datagram: bytes) -> None:
        if datagram and self._socket is not None:
            self._socket.sendto(datagram, (self._to.host, self._to.port))
