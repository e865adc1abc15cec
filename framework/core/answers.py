"""Reads what participants answer: plain values of the contract's own classes, or `Unfit`.

Read inside the guard that names the participant, since reading is a call of its code too: an
answer may be of a class of its own making.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from framework.contracts.participant import Admission, External, Hold, Ready, Refuse, Wait
from framework.errors import InputError, UnsupportedError
from framework.plugins.blame import in_one_line
from framework.shown import printable, shown

if TYPE_CHECKING:
    from framework.contracts.participant import SchedulerParticipant

MAY_REFUSE = frozenset(("admit", "external_prefix"))
"""Methods that may say no to a request, by answering or by raising."""


class Unfit(Exception):
    """The answer is none that the contract knows."""

    def __init__(self, answer: object) -> None:
        super().__init__(f"it answered {shown(answer)}")


def ask(participant: SchedulerParticipant, method: str, *arguments: object) -> object:
    """What a method answers, or the refusal that it raises where it may."""
    call = getattr(participant, method)
    if method in MAY_REFUSE:
        return unless_refused(call, *arguments)
    return call(*arguments)


def unless_refused(call: Callable[..., object], *arguments: object) -> object:
    """What a call answers; Refuse for an error that says that the request cannot be served."""
    try:
        return call(*arguments)
    except (InputError, UnsupportedError) as error:
        return Refuse(in_one_line(error))


def integer(answer: object) -> int:
    """An int, whatever class of integers the answer is of."""
    if isinstance(answer, int):
        return int.__add__(answer, 0)
    if isinstance(answer, np.integer):
        return int(answer)
    raise Unfit(answer)


def text(answer: object) -> str:
    """A str that UTF-8 can carry, whatever class of strings the answer is of."""
    if isinstance(answer, str):
        return printable("".join((answer,)))
    raise Unfit(answer)


def called(answer: object) -> Callable[[], object]:
    """Something that can be called."""
    if callable(answer):
        return answer
    raise Unfit(answer)


def refusal(answer: Refuse) -> Refuse:
    """Any reason will do; the empty text if it is none."""
    reason = text(answer.reason) if isinstance(answer.reason, str) else ""
    return Refuse(reason, failed=bool(answer.failed))


def admission(answer: object) -> Admission:
    """Of `admit`."""
    if isinstance(answer, Wait):
        return Wait(text(answer.reason), called(answer.wake))  # type: ignore[arg-type]
    if isinstance(answer, Refuse):
        return refusal(answer)
    if isinstance(answer, Ready):
        return answer
    raise Unfit(answer)


def offer(answer: object) -> External | Refuse:
    """Of `external_prefix`; no less than 0 tokens."""
    if isinstance(answer, Refuse):
        return refusal(answer)
    if not isinstance(answer, External):
        raise Unfit(answer)
    arrived = None if answer.arrived is None else called(answer.arrived)
    return External(max(integer(answer.tokens), 0), arrived)  # type: ignore[arg-type]


def arrival(answer: object) -> int | Refuse | None:
    """Of `External.arrived`."""
    if answer is None:
        return None
    return refusal(answer) if isinstance(answer, Refuse) else integer(answer)


def data(answer: object) -> bytes | None:
    """Of `attach`."""
    if answer is None or isinstance(answer, bytes):
        return None if answer is None else bytes(memoryview(answer))
    raise Unfit(answer)


def hold(answer: object) -> Hold | None:
    """Of `release`."""
    if answer is None:
        return None
    if isinstance(answer, Hold):
        return Hold(called(answer.done))  # type: ignore[arg-type]
    raise Unfit(answer)


def anything(answer: object) -> object:
    """Where the answer does not matter, or is read later."""
    return answer
