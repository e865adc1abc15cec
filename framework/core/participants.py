"""Calls participants, but only for the requests that they attend.

With no participant interested, every method here returns after one comparison.  One that
raises, or answers what its contract does not allow, never fails a step: the requests for which
it was asked count as failed, and whoever plans ends them with a sentence that names it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from framework.contracts.base import name_of
from framework.contracts.participant import (
    NO_EXTERNAL,
    READY,
    Admission,
    External,
    Hold,
    Refuse,
    Wait,
)
from framework.contracts.step import NOTHING_LATE, LateInputs
from framework.core import answers
from framework.core.late import LateMerge, flaw_of
from framework.core.patience import HeldBack
from framework.core.views import read_only
from framework.plugins.blame import blaming, of_plugin, told

if TYPE_CHECKING:
    from framework.contracts.participant import SchedulerParticipant
    from framework.contracts.step import StepPlan, StepResult
    from framework.core.request import Request

T = TypeVar("T")
logger = logging.getLogger("framework.participants")


class ParticipantHub:
    """participants: name -> instance, in the order in which they are asked.  vocab_size: what
    a bitmask must be wide enough for; None where that is not known.

    held: what participants hold back now.
    """

    def __init__(
        self,
        participants: Mapping[str, SchedulerParticipant],
        vocab_size: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._names = list(participants)
        self._members = list(participants.values())
        self._vocab_size = vocab_size
        self.held = HeldBack(clock)
        self._for_all = []
        for member in self._members:
            with blaming(member, "telling whether it attends all requests"):
                self._for_all.append(bool(member.attends_all))
        self._failed: dict[str, tuple[Request, str]] = {}

    @property
    def any(self) -> bool:
        return bool(self._members)

    def attendants(self, extras: Iterable[str]) -> tuple[int, ...]:
        """Indices of the participants that attend a request with these extras."""
        if not self._members:
            return ()
        named = set(extras)
        return tuple(
            index for index, name in enumerate(self._names) if self._for_all[index] or name in named
        )

    def take_failed(self) -> list[tuple[Request, str]]:
        """Requests that a participant failed, each with a sentence, since this was last asked.
        Some may have ended meanwhile."""
        if not self._failed:  # asked in every step
            return []
        failed = list(self._failed.values())
        self._failed.clear()
        return failed

    def admit(self, request: Request) -> Admission:
        """The first answer that is not Ready.  A participant that fails refuses the request."""
        for number, index in enumerate(request.attendants, start=1):
            request.asked = max(request.asked, number)
            answer = self._ask(index, "admit", answers.admission, [request], request)
            if isinstance(answer, Wait):
                why = f"admit answered Wait, {answer.reason!r}"
                self.held.note(request.id, self._name(index), why, request)
                return Wait(answer.reason, self._waker(index, answer.wake, request))
            if isinstance(answer, Refuse):
                return self._refusal(index, answer)
            if request.id in self._failed:  # here, or when it was to be woken
                return Refuse(self._failed.pop(request.id)[1], failed=True)
        return READY

    def external_prefix(self, request: Request, local_hit: int) -> External | Refuse:
        """The first offer of tokens beyond the local hit."""
        for index in request.attendants:
            ask = ("external_prefix", answers.offer, [request], request, local_hit)
            offer = self._ask(index, *ask)
            if request.id in self._failed:
                return Refuse(self._failed.pop(request.id)[1], failed=True)
            if isinstance(offer, Refuse):
                return self._refusal(index, offer)
            if offer is not None and offer.arrived is not None:
                self.held.clear(request.id)  # where it stays in line now, it lacks pages
                return External(offer.tokens, self._arrival(index, offer.arrived, request))
            if offer is not None and offer.tokens > 0:
                return offer
        return NO_EXTERNAL

    def limit(self, request: Request, start: int, tokens: int, least: int = 1) -> int:
        """The least of all answers, never more than `tokens`; 0 if that is less than `least`,
        or after a failure."""
        for index in request.attendants:
            answer = self._ask(index, "limit", answers.integer, [request], request, start, tokens)
            if answer is None:
                return 0
            if answer < least <= tokens:
                why = f"limit answered {answer} of {tokens} tokens"
                why += f", of a prompt that may not be cut into less than {least}" * (least > 1)
                self.held.note(request.id, self._name(index), why, request)
                return 0
            tokens = min(tokens, answer)
        if request.attendants:
            self.held.clear(request.id)
        return tokens

    def release(self, request: Request) -> list[Hold]:
        """Tell those who were asked about a request that it leaves; collects what must be held."""
        self.held.clear(request.id)
        asked, request.asked = request.attendants[: request.asked], 0
        holds = []
        for index in asked:
            hold = self._ask(index, "release", answers.hold, (), request)
            if hold is not None:
                holds.append(Hold(self._holder(index, hold.done, request.id)))
        return holds

    def _attended(self, rows: Sequence[Request | None]) -> dict[int, dict[int, Request]]:
        """Participant -> row -> request."""
        found: dict[int, dict[int, Request]] = {}
        for row, request in enumerate(rows):
            for index in request.attendants if request is not None else ():
                found.setdefault(index, {})[row] = request  # type: ignore[assignment]
        return found

    def attach(self, plan: StepPlan, requests: Iterable[Request]) -> StepPlan:
        """The plan with the attachments of the participants.  requests: those that it computes
        or admits; the participants see them by slot."""
        if not self._members:
            return plan
        attended: dict[int, dict[int, Request]] = {}
        for request in requests:
            for index in request.attendants:
                attended.setdefault(index, {})[request.slot] = request
        attachments, seen = dict(plan.attachments), read_only(plan)
        for index, own in attended.items():
            ask = ("attach", answers.data, own.values(), seen, MappingProxyType(own))
            data = self._ask(index, *ask)
            if data is not None:
                attachments[self._names[index]] = data
        return replace(plan, attachments=attachments)

    def absorb(self, result: StepResult, rows: Sequence[Request | None]) -> None:
        """Show the result to the participants before tokens are handed out: to those that
        attend a row, and to those whose worker half has something to say."""
        if not self._members:
            return
        attended, seen = self._attended(rows), read_only(result)
        for index, name in enumerate(self._names):
            if index in attended or name in result.attachments:
                own = attended.get(index, {})
                shown_rows = MappingProxyType(own)
                self._ask(index, "absorb", answers.anything, own.values(), seen, shown_rows)

    def late(self, plan: StepPlan, rows: Sequence[Request | None]) -> LateInputs:
        """Late inputs of all participants, merged."""
        if not self._members:
            return NOTHING_LATE
        merge, seen = LateMerge(), read_only(plan)
        for index, requests in self._attended(rows).items():
            shown_rows = MappingProxyType(requests)
            ask = ("late", answers.anything, requests.values(), seen, shown_rows)
            part: Any = self._ask(index, *ask)
            if part is None:
                continue
            try:
                flaw = flaw_of(part, requests, self._vocab_size)
                if flaw is None:
                    merge.add(part)
            except Exception as error:  # of a mapping or an array of the plugin's own making
                flaw = told(error)
            if flaw is not None:
                self._fail(index, "late", flaw, requests.values())
        return merge.result()

    def close(self) -> None:
        """The engine ends.  One that fails is logged."""
        for index in range(len(self._members)):
            self._ask(index, "close", answers.anything, ())

    # Failures

    def _name(self, index: int) -> str:
        return f"participant {self._names[index]!r} ({name_of(self._members[index])})"

    def _refusal(self, index: int, answer: Refuse) -> Refuse:
        reason = answer.reason or f"{self._name(index)} refused the request"
        return Refuse(reason, failed=answer.failed)

    def _ask(
        self,
        index: int,
        method: str,
        read: Callable[[object], T],
        requests: Iterable[Request],
        *arguments: object,
    ) -> T | None:
        """What the participant answers; None after a failure, and the requests are failed."""
        try:
            return read(answers.ask(self._members[index], method, *arguments))
        except answers.Unfit as error:
            self._fail(index, method, str(error), requests)
        except BaseException as error:
            self._fail(index, method, error, requests)
        return None

    def _fail(
        self, index: int, method: str, fault: BaseException | str, requests: Iterable[Request]
    ) -> None:
        """The first failure of a request counts, and is told once."""
        cause = fault if isinstance(fault, BaseException) else None
        what = fault if cause is None else told(of_plugin(cause))
        failed = [request for request in requests if request.id not in self._failed]
        sentence = f"{self._name(index)} failed in {method}: {what}"
        self._failed |= {request.id: (request, sentence) for request in failed}
        if failed or not requests:
            names = ", ".join(request.id for request in failed) or "none"
            logger.error("%s; requests that end: %s", sentence, names, exc_info=cause)

    def _waker(self, index: int, wake: Callable[[], bool], request: Request) -> Callable[[], bool]:
        """A wake that fails is over: whoever planned then ends the request."""

        def guarded() -> bool:
            try:
                return bool(wake())
            except BaseException as error:
                self._fail(index, "Wait.wake", error, [request])
                return True

        return guarded

    def _arrival(
        self, index: int, arrived: Callable[[], int | Refuse | None], request: Request
    ) -> Callable[[], int | Refuse | None]:
        """An arrival that fails refuses its request."""

        def guarded() -> int | Refuse | None:
            try:
                answer = answers.arrival(answers.unless_refused(arrived))
            except answers.Unfit as error:
                self._fail(index, "External.arrived", str(error), [request])
            except BaseException as error:
                self._fail(index, "External.arrived", error, [request])
            else:
                if answer is None:
                    why = "External.arrived brings no pages"
                    self.held.note(request.id, self._name(index), why, request)
                    return None
                self.held.clear(request.id)
                return self._refusal(index, answer) if isinstance(answer, Refuse) else answer
            return Refuse(self._failed.pop(request.id)[1], failed=True)

        return guarded

    def _holder(self, index: int, done: Callable[[], bool], of: str) -> Callable[[], bool]:
        """A hold that fails is over, or its pages would be lost for ever."""

        def guarded() -> bool:
            try:
                over = bool(done())
            except BaseException as error:
                self._fail(index, "Hold.done", error, ())
                over = True
            if over:
                self.held.clear(guarded)
            else:
                why = f"Hold.done keeps the pages of {of!r}, which has ended"
                self.held.note(guarded, self._name(index), why, None)
            return over

        return guarded
