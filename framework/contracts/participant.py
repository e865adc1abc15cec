"""Kind `scheduler_participant`: a say in scheduling, without a line in the scheduler.

Grammars that compile, KV pages that come from elsewhere, adapter slots, encoder budgets:
each is a participant.  It is visited only for requests it attends: those whose `extras`
hold its name, or all with `attends_all`.  All calls come from the engine core's thread and
must return at once; slow work belongs in threads or processes of the participant's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from framework.contracts.base import Contract

if TYPE_CHECKING:
    from framework.contracts.step import LateInputs, StepPlan, StepResult
    from framework.core.request import Request


@dataclass(frozen=True, slots=True)
class Ready:
    """The request may run."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The request stands aside and blocks nobody.

    reason: shown in statistics.  wake: returns True when it is worth asking again; called
    once a step, so it must be cheap.
    """

    reason: str
    wake: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Refuse:
    """The request can never run; it ends with this sentence as its error."""

    reason: str


@dataclass(frozen=True, slots=True)
class Hold:
    """Pages of a finished request stay until `done()` returns True (asked once a step)."""

    done: Callable[[], bool]


Admission = Ready | Wait | Refuse
READY = Ready()


class SchedulerParticipant(Contract):
    """Every method has a neutral default: override those that you need."""

    kind: ClassVar[str] = "scheduler_participant"
    attends_all: ClassVar[bool] = False

    def admit(self, request: Request) -> Admission:
        """Asked before a waiting request gets pages; again after each wake."""
        return READY

    def external_prefix(self, request: Request, local_hit: int) -> tuple[int, bool]:
        """(tokens beyond `local_hit` that exist elsewhere, whether they arrive later)."""
        return 0, False

    def limit(self, request: Request, tokens: int) -> int:
        """Most tokens of `request` in this step, at most `tokens`; 0 skips it this step.

        Must not have effects: the step may still be changed.
        """
        return tokens

    def attach(self, plan: StepPlan, requests: Mapping[int, Request]) -> bytes | None:
        """Bytes for the participant's worker half.  `requests`: attended rows by row."""
        return None

    def absorb(self, result: StepResult, requests: Mapping[int, Request]) -> None:
        """Called after a step with the attended rows, before tokens are handed out."""

    def release(self, request: Request) -> Hold | None:
        """The request leaves (finished, aborted, preempted)."""
        return None

    def late(self, plan: StepPlan, requests: Mapping[int, Request]) -> LateInputs | None:
        """Inputs known only now, after the step before `plan` (bitmasks of a grammar)."""
        return None
