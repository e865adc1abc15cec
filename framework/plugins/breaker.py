"""Calls to plugins that must disturb nobody: what they cost is counted, and one that fails again
and again is switched off."""

from __future__ import annotations

import functools
from collections.abc import Callable
from time import perf_counter

from framework.plugins.blame import of_plugin
from framework.plugins.loading import log
from framework.plugins.records import Record, State


class Breaker:
    """Guards the calls to one plugin.

    limit: errors in a row of one method after which the whole plugin is off: what it would make of
    half of its events nobody has thought of.  None: never.  Off means that it is called no more,
    not even to close; its record says so, with the reason.
    """

    def __init__(self, record: Record, limit: int | None) -> None:
        self.record = record
        self.off = False
        self._limit = limit

    def guarded(self, method: Callable[..., object], name: str) -> Callable[..., None]:
        """`method`, such that it raises nothing but an interrupt from the keyboard.

        name: what the log shall call it.  Errors are logged under the plugin's name.
        """
        usage, in_a_row = self.record.usage, 0

        @functools.wraps(method)
        def call(*arguments: object) -> None:
            nonlocal in_a_row
            if self.off:
                return
            started = perf_counter()
            try:
                method(*arguments)
                in_a_row = 0
            except BaseException as error:
                of_plugin(error)
                in_a_row += 1
                usage.errors += 1
                log.exception("plugin %s failed in %s", self.record.key, name)
                self._judge(name, in_a_row, error)
            finally:
                usage.calls += 1
                usage.seconds += perf_counter() - started

        return call

    def _judge(self, name: str, in_a_row: int, error: BaseException) -> None:
        if self._limit is None or in_a_row < self._limit:
            return
        self.off = True
        times = f"{in_a_row} errors in a row" if in_a_row > 1 else "an error"
        reason = f"switched off after {times} in {name}: {type(error).__name__}: {error}"
        if self.record.state is State.USED:
            self.record.move(State.OFF, reason)
        log.error("plugin %s is off until the next start: %s", self.record.key, reason)
