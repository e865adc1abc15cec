"""Memory that is given back while nobody needs the model, and taken again.

level   cache   weights
  0     there   there     awake
  1     gone    there
  2     gone    gone
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from framework.errors import InputError, OverloadedError, UnsupportedError
from framework.plugins.blame import blaming
from framework.shown import shown

if TYPE_CHECKING:
    from framework.contracts.model_runner import ModelRunner
    from framework.core.state import CoreState

OPS = frozenset(("sleep", "wake"))
LEVELS = (1, 2)


class Sleeper:
    """Puts a runner to sleep and wakes it.  ops: operations that it declared.  clock: seconds."""

    def __init__(
        self, state: CoreState, runner: ModelRunner, ops: frozenset[str], clock: Callable[[], float]
    ) -> None:
        self._state, self._runner, self._ops, self._clock = state, runner, ops, clock

    def sleep(self, level: int, land: Callable[[], None]) -> None:
        """Down to `level`, unless that is reached already.  land: ends the steps in flight.

        Requests that run go back to the line with their tokens.  Raises InputError for another
        level, UnsupportedError if the runner does not sleep, OverloadedError while a participant
        still reads pages; then it is awake and goes on.
        """
        state = self._state
        self._check(level)
        if level <= state.asleep:
            return
        before = state.asleep
        land()
        send_back(state, self._clock)
        state.pass_fence()
        if state.fence.num_held:
            raise OverloadedError(
                "the cache cannot be given up: a participant still reads pages of it",
                found=f"{state.fence.num_held} sets of pages",
                mend="ask again later",
            )
        state.kv.prefix.clear()
        state.asleep = level
        try:
            with blaming(self._runner, f"going to sleep at level {level}"):
                self._runner.control("sleep", {"level": level})
        except BaseException:
            state.asleep = before
            raise

    def wake(self) -> None:
        """Take the memory again.  Where the runner cannot, it sleeps on and its error is
        raised."""
        if not self._state.asleep:
            return
        with blaming(self._runner, "waking up"):
            self._runner.control("wake", {})
        self._state.asleep = 0

    def _check(self, level: int) -> None:
        if type(level) is not int or level not in LEVELS:  # True and 2.0 equal one of them
            raise InputError(
                "the level of sleep is invalid",
                parameter="level",
                expected="1 (the cache is given back) or 2 (the weights too)",
                found=shown(level),
            )
        if not self._ops >= OPS:
            raise UnsupportedError(
                "the model runner cannot sleep",
                expected=f"a runner that declares {', '.join(sorted(OPS))}",
                found=f"it declares {', '.join(sorted(self._ops)) or 'nothing'}",
                mend="choose another executor or model runner",
            )


def send_back(state: CoreState, clock: Callable[[], float]) -> None:
    """Requests that run or load go back to the line, with their tokens and their place in it."""
    for slot in [*state.running, *state.loading]:
        state.preempt(slot, clock())
