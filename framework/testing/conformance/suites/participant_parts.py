"""A look at every call of a participant: what it is shown, what it answers, how long it takes."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from framework.contracts.participant import (
    Admission,
    External,
    Hold,
    Refuse,
    SchedulerParticipant,
    Wait,
)
from framework.contracts.step import AdmittedRequest, LateInputs, StepPlan, StepResult
from framework.core.answers import MAY_REFUSE
from framework.core.late import flaw_of
from framework.core.request import Request
from framework.errors import InputError, UnsupportedError
from framework.testing.conformance.cases import expect
from framework.testing.conformance.outcomes import Violation
from framework.testing.conformance.suites.participant_answers import (
    check_admission,
    check_external,
    check_limit,
    check_release,
    is_count,
)
from framework.testing.scripted import ScriptedRunner
from framework.testing.scripts import by_fingerprint

T = TypeVar("T")
_MAY_RAISE = MAY_REFUSE | {"External.arrived"}


class Witness(SchedulerParticipant):
    """Passes calls on and keeps the first thing that is wrong: the engine ends the requests that
    a participant fails, and goes on.

    It also plays the worker half of a participant with tokens from elsewhere: they arrive in the
    runner's cache exactly as offered.
    now: the clock.
    strict: also look whether what it is shown stays as it was, which takes its time.
    seconds: of each call, by method.  refused: ids of requests that it does not want to run.
    masked: ids of those that may not have any token.
    """

    def __init__(
        self, participant: SchedulerParticipant, now: Callable[[], float], *, strict: bool = False
    ) -> None:
        super().__init__()
        self._now = now
        self.strict = strict
        self.participant, self.plugin_id = participant, participant.plugin_id
        self.attends_all = participant.attends_all  # type: ignore[misc]
        self.runner: ScriptedRunner
        self.problem: BaseException | None = None
        self.seconds: dict[str, list[float]] = {}
        self.refused: set[str] = set()
        self.masked: set[str] = set()
        self._masks: dict[str, npt.NDArray[np.uint32]] = {}
        self.inside: set[str] = set()
        self._offered: dict[str, tuple[int, int]] = {}
        self._entering: dict[tuple[int, str], tuple[int, int]] = {}
        self._entered: set[str] = set()

    def check(self) -> None:
        """Raise Violation if a call went wrong."""
        if isinstance(self.problem, Violation):
            raise self.problem
        if self.problem is not None:
            what = f"{type(self.problem).__name__}: {self.problem}"
            raise Violation(f"the participant failed in a running engine: {what}") from self.problem

    def slowest(self) -> tuple[str, float]:
        """Method and median of its seconds."""
        medians = {name: statistics.median(times) for name, times in self.seconds.items()}
        return max(medians.items(), key=lambda item: item[1])

    def _call(self, method: str, call: Callable[[], T], check: Callable[[T], None]) -> T:
        started = self._now()
        try:
            answer = call()
            self.seconds.setdefault(method, []).append(self._now() - started)
            check(answer)
        except Exception as error:
            if not (method in _MAY_RAISE and isinstance(error, InputError | UnsupportedError)):
                self.problem = self.problem or error
            raise
        return answer

    @contextmanager
    def _refusing(self, request: Request) -> Iterator[None]:
        """Note a refusal that is raised."""
        try:
            yield
        except (InputError, UnsupportedError):
            self.refused.add(request.id)
            raise

    def _ask(
        self,
        method: str,
        check: Callable[[Any], None],
        requests: Sequence[Request],
        shown: Sequence[object],
        *arguments: object,
    ) -> Any:
        """Call a method; what it is shown must be the same afterwards."""
        watched = (*requests, *shown) if self.strict else ()
        before = [_state(thing) for thing in watched]

        def checked(answer: Any) -> None:
            check(answer)
            for thing, old in zip(watched, before, strict=True):
                _check_same(method, thing, old)

        return self._call(method, lambda: getattr(self.participant, method)(*arguments), checked)

    def admit(self, request: Request) -> Admission:
        self.inside.add(request.id)
        with self._refusing(request):
            answer: Admission = self._ask("admit", check_admission, [request], [], request)
        if isinstance(answer, Refuse):
            self.refused.add(request.id)
        if isinstance(answer, Wait):
            wake = answer.wake
            return Wait(answer.reason, lambda: self._call("Wait.wake", wake, _check_flag))
        return answer

    def external_prefix(self, request: Request, local_hit: int) -> External | Refuse:
        with self._refusing(request):
            offer: External | Refuse = self._ask(
                "external_prefix", check_external, [request], [], request, local_hit
            )
        self._offered.pop(request.id, None)
        if isinstance(offer, Refuse):
            self.refused.add(request.id)
            return offer
        most = max(min(local_hit + offer.tokens, len(request.tokens) - 1), local_hit)
        if offer.arrived is None:
            self._offered[request.id] = (local_hit, most)
            return offer
        arrived = offer.arrived
        self._entered.discard(request.id)

        def checked(answer: object) -> None:
            fine = answer is None or isinstance(answer, Refuse)
            fine = fine or (is_count(answer) and answer <= offer.tokens)  # type: ignore[operator]
            expect(fine, f"External.arrived: not of {offer.tokens} tokens", found=answer)

        def look() -> int | Refuse | None:
            if request.id not in self._entered:
                return None  # the worker half does not know of it yet
            with self._refusing(request):
                answer = self._call("External.arrived", arrived, checked)
            if isinstance(answer, Refuse):
                self.refused.add(request.id)
            elif answer is not None:
                self.runner.fill(request.id, local_hit, min(local_hit + answer, most))
            return answer

        return External(offer.tokens, look)

    def limit(self, request: Request, start: int, tokens: int) -> int:
        def checked(answer: object) -> None:
            check_limit(answer, tokens)

        return int(self._ask("limit", checked, [request], [], request, start, tokens))

    def attach(self, plan: StepPlan, requests: Mapping[int, Request]) -> bytes | None:
        for request in plan.admitted:
            if request.request_id in self._offered:
                key = plan.step_id, request.request_id
                self._entering[key] = self._offered.pop(request.request_id)
        answer: bytes | None = self._ask(
            "attach", _check_bytes, list(requests.values()), [plan], plan, requests
        )
        return answer

    def worker(self, plan: StepPlan) -> None:
        """The worker half: tokens that were there at once are in the cache from now on."""
        for request in plan.admitted:
            self._entered.add(request.request_id)
            span = self._entering.pop((plan.step_id, request.request_id), None)
            if span is not None:
                self.runner.fill(request.request_id, *span)

    def absorb(self, result: StepResult, requests: Mapping[int, Request]) -> None:
        self._ask(
            "absorb", lambda answer: None, list(requests.values()), [result], result, requests
        )

    def late(self, plan: StepPlan, requests: Mapping[int, Request]) -> LateInputs | None:
        def checked(answer: object) -> None:
            flaw = None if answer is None else flaw_of(answer, requests, self.runner.vocab_size)
            expect(flaw is None, f"late: {flaw}", found=answer)

        self._masks.clear()
        answer: LateInputs | None = self._ask(
            "late", checked, list(requests.values()), [plan], plan, requests
        )
        if answer is not None and answer.bitmask is not None:
            for row, mask in zip(answer.bitmask_rows.tolist(), answer.bitmask, strict=True):
                self._masks.setdefault(requests[row].id, mask)  # the first: there are no drafts
        return answer

    def script(self, request: AdmittedRequest, position: int, before: int) -> int:
        """What the runner says: what it always does, within the bitmask of the row."""
        token = by_fingerprint(self.runner.vocab_size)(request, position, before)
        mask = self._masks.get(request.request_id)
        if mask is None:
            return token
        self.masked.add(request.request_id)
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[: self.runner.vocab_size]
        allowed = np.flatnonzero(bits)
        if not len(allowed):
            flaw = Violation("late: a bitmask that allows no token\n  expected: one at least")
            self.problem = self.problem or flaw
            return token
        return token if bits[token] else int(allowed[token % len(allowed)])

    def release(self, request: Request) -> Hold | None:
        expect(request.id in self.inside, f"{request.id} is released without being admitted")
        self.inside.discard(request.id)
        answer: Hold | None = self._ask("release", check_release, [request], [], request)
        if answer is None:
            return None
        done = answer.done
        return Hold(lambda: self._call("Hold.done", done, _check_flag))


def _check_flag(answer: object) -> None:
    expect(isinstance(answer, bool | np.bool_), "not True or False", found=answer)


def _check_bytes(answer: object) -> None:
    expect(answer is None or isinstance(answer, bytes), "attach: not bytes", found=answer)


def _state(thing: Any) -> dict[str, object]:
    """Fields of a request, its input, a plan or a result, as values that later changes do not
    reach."""
    if isinstance(thing, Request):
        own = {f"input.{name}": value for name, value in _state(thing.input).items()}
        return own | {name: _frozen(getattr(thing, name)) for name in thing.__slots__}
    if isinstance(thing, msgspec.Struct):
        return {name: _frozen(getattr(thing, name)) for name in thing.__struct_fields__}
    return {field.name: _frozen(getattr(thing, field.name)) for field in dataclasses.fields(thing)}


def _frozen(value: object) -> object:
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, Mapping):
        return {key: _frozen(inner) for key, inner in value.items()}
    return tuple(value) if isinstance(value, list) else value


def _check_same(method: str, thing: object, before: dict[str, object]) -> None:
    after = _state(thing)
    changed = [name for name, value in before.items() if not _same(after[name], value)]
    kind = type(thing).__name__
    expect(not changed, f"{method} changed what it was shown: {kind}.{', '.join(changed)}")


def _same(first: object, second: object) -> bool:
    # An input holds arrays, which cannot be compared by ==; nobody may put another in its place.
    return first is second or bool(first == second)
