"""What the methods of a scheduler participant may answer."""

from __future__ import annotations

import numpy as np

from framework.contracts.participant import External, Hold, Ready, Refuse, Wait
from framework.testing.conformance.cases import expect


def check_admission(answer: object) -> None:
    """Raise Violation unless it is an answer of `admit`."""
    expect(isinstance(answer, Ready | Wait | Refuse), "admit: not an admission", found=answer)
    if isinstance(answer, Wait):
        fine = isinstance(answer.reason, str) and answer.reason
        expect(fine, "Wait.reason is no text", found=answer.reason)
        expect(callable(answer.wake), "Wait.wake cannot be called", found=answer.wake)
    if isinstance(answer, Refuse):
        fine = isinstance(answer.reason, str) and answer.reason
        expect(fine, "Refuse.reason is no text", found=answer.reason)


def check_external(answer: object) -> None:
    """Raise Violation unless it is an answer of `external_prefix`."""
    expect(isinstance(answer, External | Refuse), "external_prefix: not an offer", found=answer)
    if isinstance(answer, External):
        expect(
            is_count(answer.tokens), "External.tokens is no number of tokens", found=answer.tokens
        )
        fine = answer.arrived is None or callable(answer.arrived)
        expect(fine, "External.arrived cannot be called", found=answer.arrived)


def check_limit(answer: object, tokens: int) -> int:
    """Raise Violation unless it is an answer of `limit`."""
    expect(is_count(answer), "limit: not a number of tokens", found=answer)
    assert isinstance(answer, int | np.integer)
    expect(answer <= tokens, "limit: more than asked", expected=f"<= {tokens}", found=answer)
    return int(answer)


def check_release(answer: object) -> None:
    """Raise Violation unless it is an answer of `release`."""
    expect(
        answer is None or isinstance(answer, Hold), "release: neither None nor Hold", found=answer
    )
    if isinstance(answer, Hold):
        expect(callable(answer.done), "Hold.done cannot be called", found=answer.done)


def is_count(value: object) -> bool:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return whole and int(value) >= 0  # type: ignore[call-overload]
