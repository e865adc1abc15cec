"""Calls participants, but only for the requests that they attend.

With no participant interested, every method here returns after one comparison.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from framework.contracts.participant import (
    NO_EXTERNAL,
    READY,
    Admission,
    External,
    Ready,
    Refuse,
)
from framework.contracts.step import NOTHING_LATE, LateInputs
from framework.errors import UnsupportedError

logger = logging.getLogger("framework.participants")

if TYPE_CHECKING:
    from framework.contracts.participant import Hold, SchedulerParticipant
    from framework.contracts.step import StepPlan, StepResult
    from framework.core.request import Request


class ParticipantHub:
    """participants: name -> instance, in the order in which they are asked."""

    def __init__(self, participants: Mapping[str, SchedulerParticipant]) -> None:
        self._names = list(participants)
        self._members = list(participants.values())

    @property
    def any(self) -> bool:
        return bool(self._members)

    def attendants(self, extras: Iterable[str]) -> tuple[int, ...]:
        """Indices of the participants that attend a request with these extras."""
        named = set(extras)
        return tuple(
            index
            for index, (name, member) in enumerate(zip(self._names, self._members, strict=True))
            if member.attends_all or name in named
        )

    def admit(self, request: Request) -> Admission:
        """The first answer that is not Ready.  A participant that fails refuses the request."""
        for index in request.attendants:
            try:
                answer = self._members[index].admit(request)
            except Exception as error:
                return self._failed(index, "admit", error)
            if not isinstance(answer, Ready):
                return answer
        return READY

    def external_prefix(self, request: Request, local_hit: int) -> External | Refuse:
        """The first offer of tokens beyond the local hit."""
        for index in request.attendants:
            try:
                offer = self._members[index].external_prefix(request, local_hit)
            except Exception as error:
                return self._failed(index, "external_prefix", error)
            if isinstance(offer, Refuse) or offer.tokens > 0:
                return offer
        return NO_EXTERNAL

    def limit(self, request: Request, start: int, tokens: int) -> int:
        """The least of all answers, never more than `tokens`."""
        for index in request.attendants:
            tokens = max(0, min(tokens, self._members[index].limit(request, start, tokens)))
        return tokens

    def _failed(self, index: int, method: str, error: Exception) -> Refuse:
        """A participant that fails refuses the request, and is named."""
        logger.exception("participant %r failed in %s", self._names[index], method)
        return Refuse(f"participant {self._names[index]!r} failed in {method}: {error!r}")

    def release(self, request: Request) -> list[Hold]:
        """Tell that a request leaves; collects what must be held."""
        held = (self._members[index].release(request) for index in request.attendants)
        return [hold for hold in held if hold is not None]

    def _attended(self, requests: Iterable[Request | None]) -> dict[int, dict[int, Request]]:
        """Participant -> slot -> request."""
        found: dict[int, dict[int, Request]] = {}
        for request in requests:
            # A slot below zero: it left while the step was in flight.
            if request is not None and request.slot >= 0:
                for index in request.attendants:
                    found.setdefault(index, {})[request.slot] = request
        return found

    def attach(self, plan: StepPlan, requests: Iterable[Request | None]) -> StepPlan:
        """The plan with the attachments of the participants."""
        if not self._members:
            return plan
        attachments = dict(plan.attachments)
        for index, own in self._attended(requests).items():
            data = self._members[index].attach(plan, own)
            if data is not None:
                attachments[self._names[index]] = data
        return replace(plan, attachments=attachments)

    def absorb(self, result: StepResult, requests: Iterable[Request | None]) -> None:
        """Show the result to the participants before tokens are handed out."""
        if not self._members:
            return
        attended = self._attended(requests)
        for index, (name, member) in enumerate(zip(self._names, self._members, strict=True)):
            if index in attended or name in result.attachments:
                member.absorb(result, attended.get(index, {}))

    def late(self, plan: StepPlan, requests: Iterable[Request | None]) -> LateInputs:
        """Late inputs of all participants, merged.  At most one may bring a bitmask a row."""
        if not self._members:
            return NOTHING_LATE
        parts = [
            part
            for index, own in self._attended(requests).items()
            if (part := self._members[index].late(plan, own)) is not None
        ]
        return _merge(parts)


def _merge(parts: Sequence[LateInputs]) -> LateInputs:
    if not parts:
        return NOTHING_LATE
    attachments = {name: data for part in parts for name, data in part.attachments.items()}
    masked = [part for part in parts if part.bitmask is not None]
    if not masked:
        return LateInputs(attachments=attachments)
    rows = np.concatenate([part.bitmask_rows for part in masked])
    if len(np.unique(rows)) != sum(len(np.unique(part.bitmask_rows)) for part in masked):
        raise UnsupportedError("two participants bring a bitmask for one row")
    return LateInputs(
        bitmask=np.concatenate([part.bitmask for part in masked if part.bitmask is not None]),
        bitmask_rows=rows,
        covered=np.concatenate([part.covered for part in masked]),
        attachments=attachments,
    )
