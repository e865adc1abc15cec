"""Runs the stat loggers, each in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from framework.contracts.stat_logger import StatLogger
from framework.plugins.blame import blaming, unfit
from framework.plugins.breaker import Breaker
from framework.plugins.loading import log
from framework.plugins.records import Record
from framework.stats.statistics import Statistics

if TYPE_CHECKING:
    from framework.plugins.registry import PluginRegistry

CLOSE_SECONDS = 5.0


def create_loggers(
    registry: PluginRegistry, names: Iterable[str], error_limit: int | None
) -> StatLoggers:
    """Those that the operator named.  Raises PluginError."""
    made = []
    for name in names:
        record = registry.find("stat_logger", name, named=True)
        made.append((record, cast(StatLogger, registry.create_record(record))))
    return StatLoggers(made, Statistics(registry.records), error_limit)


class StatLoggers:
    """The active stat loggers of one engine and the statistics they log.

    error_limit: see `Breaker`.
    """

    def __init__(
        self,
        loggers: Sequence[tuple[Record, StatLogger]],
        statistics: Statistics,
        error_limit: int | None,
    ) -> None:
        self.statistics = statistics
        self._threads = [
            _LoggerThread(logger, Breaker(record, error_limit), statistics)
            for record, logger in loggers
        ]

    def start(self, cache: Mapping[str, str]) -> None:
        """cache: facts of it, for the statistics.  Raises PluginError for a logger that cannot
        be started; then none runs."""
        self.statistics.cache = cache
        for thread in self._threads:
            thread.prepare()
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Let each log a last snapshot, and wait for that, but not for ever."""
        for thread in self._threads:
            thread.stop()
        for thread in self._threads:
            thread.await_end()


class _LoggerThread:
    def __init__(self, logger: StatLogger, breaker: Breaker, statistics: Statistics) -> None:
        self._logger, self._breaker, self._statistics = logger, breaker, statistics
        self._log = breaker.guarded(logger.log, "log")
        self._close = breaker.guarded(logger.close, "close")
        self._stop = threading.Event()
        self._prepared = False
        self._thread = threading.Thread(
            target=self._run, name=f"stats {breaker.record.name}", daemon=True
        )

    def prepare(self) -> None:
        with blaming(self._logger, "starting to log statistics"):
            self._period = _period(self._logger)
            self._logger.start(self._statistics.snapshot)
        self._prepared = True

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def await_end(self) -> None:
        if not self._thread.ident:  # the engine did not get that far
            if self._prepared:
                self._close()
            return
        self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            log.warning(
                "plugin %s has not ended %g s after the engine; what it had to log may be lost",
                self._breaker.record.key,
                CLOSE_SECONDS,
            )

    def _run(self) -> None:
        while not self._stop.wait(self._period) and not self._breaker.off:
            self._log(self._statistics.snapshot())
        self._stop.wait()
        self._log(self._statistics.snapshot(final=True))
        self._close()


def _period(logger: StatLogger) -> float | None:
    period = logger.period
    if period is None:
        return None
    good = isinstance(period, int | float) and not isinstance(period, bool)
    if not good or not 0 < period < threading.TIMEOUT_MAX:
        raise unfit(logger, "has a period that is none", "seconds > 0, or None", period)
    return float(period)
