"""Stat logger `prometheus`: the statistics on a port of their own, for engines without a server."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from framework.contracts.stat_logger import Snapshot, StatLogger
from framework.errors import ConfigError

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

log = logging.getLogger("framework")


class PrometheusOptions(BaseModel):
    """Options of `Prometheus`."""

    model_config = ConfigDict(extra="forbid")

    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=0, ge=0, le=65535, description="Port; 0 takes a free one.")


class Prometheus(StatLogger):
    """Answers whoever asks, with a snapshot of that moment; the same names as `/metrics`."""

    Options: ClassVar[type[PrometheusOptions]] = PrometheusOptions
    period = None

    def __init__(self, options: BaseModel | None = None) -> None:
        super().__init__(options)
        found = options if isinstance(options, PrometheusOptions) else PrometheusOptions()
        self._host, self._port = found.host, found.port
        self._server: WSGIServer | None = None

    def start(self, snapshot: Callable[[], Snapshot]) -> None:
        """Listen.  Raises ConfigError where the address is taken."""
        from prometheus_client import start_http_server

        from framework_http.metrics import registry_of

        registry = registry_of(lambda: snapshot().metrics)
        try:
            self._server, _ = start_http_server(self._port, self._host, registry)
        except OSError as error:
            raise ConfigError(
                f"the stat logger prometheus cannot listen: {error}",
                expected="an address that is free",
                found=f"{self._host}:{self._port}",
                mend="set --plugin-option stat_logger.prometheus.port=PORT",
            ) from error
        log.warning("metrics on http://%s:%d/metrics", self._host, self._server.server_port)

    def log(self, snapshot: Snapshot) -> None:
        """Nothing is to be done: who wants to know asks."""

    def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
