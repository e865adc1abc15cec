"""Clauses about single calls of a scheduler participant, and what its suite may be told."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, cast

import msgspec
import numpy as np

from framework.contracts.messages import EngineInput
from framework.contracts.participant import EngineContext, Ready, Refuse, Wait
from framework.contracts.sampling import SamplingParams
from framework.core.answers import unless_refused
from framework.core.request import Request
from framework.engine.extras import encode_extras, read_extras
from framework.testing.byte_tokenizer import FIRST_WORD, ByteTokenizer
from framework.testing.conformance.cases import Case, expect
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.outcomes import Violation
from framework.testing.conformance.suite import Suite
from framework.testing.conformance.suites.participant_adapters import (
    LIMITS,
    AdapterBooks,
    naming,
)
from framework.testing.conformance.suites.participant_answers import (
    check_admission,
    check_external,
    check_limit,
    check_release,
)

if TYPE_CHECKING:
    from framework.contracts.base import Contract
    from framework.contracts.participant import Admission, FrontHalf, SchedulerParticipant
    from framework.contracts.tokenizer import Tokenizer

VOCABULARY = 1000
"""Tokens of the model that is not there."""


class ParticipantCalls(Suite):
    """attends_all: the class attends requests that do not name it, too.

    call_budget: seconds that a call may take, in the median of those to one method.
    patience: seconds that a request may have to wait for something that is not a step.
    """

    kind = "scheduler_participant"
    ordinary = ("admissions_are_of_three_kinds",)
    capabilities = ("attends_all",)
    call_budget: ClassVar[float] = 0.005
    patience: ClassVar[float] = 5.0

    def declared(self) -> frozenset[str]:
        return frozenset(self.capabilities) if self.new().attends_all else frozenset()

    def make(self) -> Contract:
        """A new instance that was started, as in the engine core."""
        participant = super().make()
        cast("SchedulerParticipant", participant).start(self.context())
        return participant

    def context(self) -> EngineContext:
        """What the participant may know of the engine, one without a model."""
        return EngineContext(
            registry=self.target.registry,
            choices={},
            load_tokenizer=_tokenizer,
            vocab_size=VOCABULARY,
            adapters=LIMITS,
            control=AdapterBooks().control,
        )

    def fields(self, case: Case, number: int) -> dict[str, Any]:
        """Of the EngineInput of a request that the participant attends."""
        if cast("type[SchedulerParticipant]", self.target.load()).serves_adapters:
            return naming(self.target.record.name, number)
        return {"extras": self.extras(self.sampling(case))}

    def arguments(self, case: Case) -> object:
        """What a client passes to it in `extra_args`: plain data that lets a request run.
        Override it for a participant without `examples` that refuses an empty mapping."""
        return {}

    def asked(self, case: Case) -> Mapping[str, Any]:
        """Fields of SamplingParams of a request that the participant attends."""
        examples = self.new().examples
        if examples:
            return cast("Mapping[str, Any]", examples[int(case.rng.integers(len(examples)))])
        return {"extra_args": {self.target.record.name: self.arguments(case)}}

    def sampling(self, case: Case) -> SamplingParams:
        """Of a request that the participant attends."""
        return SamplingParams(max_tokens=8, **self.asked(case))

    # Single calls

    def request(self, case: Case, number: int = 0, *, named: bool = True, **more: Any) -> Request:
        """A request as a participant sees it before it has a slot."""
        tokens = case.rng.integers(0, 50, int(case.rng.integers(2, 40))).astype(np.int32)
        entry = EngineInput(
            request_id=f"r{number}",
            tokens=tokens,
            sampling=self.sampling(case) if named else SamplingParams(max_tokens=8),
            seed=number,
            max_total=len(tokens) + 8,
            **{
                "tenant": f"t{int(case.rng.integers(0, 3))}",
                **(self.fields(case, number) if named else {}),
                **more,
            },
        )
        return Request(entry, number + 1, float(number), 0)

    def extras(self, sampling: SamplingParams) -> dict[str, bytes]:
        """What the participant gets of a request, through its half in the front end if it has one.
        Raises what that raises."""
        if self.half is None:
            return encode_extras(sampling)
        return encode_extras(sampling) | read_extras({self.target.record.name: self.half}, sampling)

    @cached_property
    def half(self) -> FrontHalf | None:
        """The half in the front end, where the core's is another instance."""
        participant = super().make()
        self.made.append(participant)
        return cast("SchedulerParticipant", participant).front_half(self.context())

    def ready(self, participant: SchedulerParticipant, request: Request) -> None:
        """Ask until the request may run.  Raises Violation if it may not, or not in time."""
        patience = self.patience * self.slowness
        ends = self.now() + patience
        while True:
            answer = admission(participant, request)
            if isinstance(answer, Ready):
                return
            if isinstance(answer, Refuse):
                raise Violation(
                    f"the request is refused: {answer.reason}\n"
                    "  expected: one that may run; override `arguments` in a suite of your own"
                )
            while not answer.wake():
                if self.now() > ends:
                    raise Violation(
                        f"a request that is alone waits for ever: {answer.reason}\n"
                        f"  expected: wake() is True within {patience:g} s"
                    )
                self.pause(0.001)

    @clause("PART-001", "admit answers Ready, Wait or Refuse", of=("admit",))
    def admissions_are_of_three_kinds(self) -> None:
        for case in self.cases(5):
            participant = self.new()
            for number in range(4):
                admission(participant, self.request(case, number))

    @clause("PART-002", "asked again for a request that may run, it lets it run", of=("admit",))
    def admit_can_be_asked_again(self) -> None:
        for case in self.cases(5):
            participant, request = self.new(), self.request(case)
            self.ready(participant, request)
            for _ in range(3):
                again = admission(participant, request)
                expect(
                    isinstance(again, Ready),
                    "admit answers differently when pages were lacking and it is asked again",
                    expected="Ready, as before",
                    found=again,
                )

    @clause("PART-003", "limit answers a number of tokens from 0 to those asked", of=("limit",))
    def limits_are_in_range(self) -> None:
        for case in self.cases(10):
            participant, request = self.new(), self.request(case)
            self.ready(participant, request)
            start = int(case.rng.integers(0, len(request.tokens)))
            tokens = int(case.rng.integers(1, len(request.tokens) - start + 1))
            case.note(start=start, tokens=tokens)
            check_limit(participant.limit(request, start, tokens), tokens)

    @clause("PART-004", "asking for a limit uses nothing up", of=("limit",))
    def limit_can_be_asked_again(self) -> None:
        for case in self.cases(5):
            participant, request = self.new(), self.request(case)
            self.ready(participant, request)
            tokens = len(request.tokens)
            first = check_limit(participant.limit(request, 0, tokens), tokens)
            for _ in range(5):
                again = check_limit(participant.limit(request, 0, tokens), tokens)
                expect(
                    again >= first,
                    "the limit shrinks by being asked for, although nothing was planned",
                    expected=f">= {first}",
                    found=again,
                )

    @clause(
        "PART-005",
        "external_prefix offers 0 tokens or more, or refuses, also when asked again",
        of=("external_prefix",),
    )
    def offers_are_counts(self) -> None:
        for case in self.cases(5):
            participant, request = self.new(), self.request(case)
            self.ready(participant, request)
            for _ in range(3):
                hit = int(case.rng.integers(0, len(request.tokens)))
                case.note(local_hit=hit)
                check_external(unless_refused(participant.external_prefix, request, hit))

    @clause(
        "PART-006",
        "release answers None or Hold, also for a request that waited and never ran",
        of=("release",),
    )
    def requests_that_never_ran_are_released(self) -> None:
        for case in self.cases(5):
            participant = self.new()
            requests = [self.request(case, number) for number in range(6)]
            for request in requests:
                admission(participant, request)
            for request in requests:
                check_release(participant.release(request))

    @clause(
        "PART-007",
        "once released, a request may come again, and so may others",
        of=("admit", "release"),
    )
    def what_is_released_is_free(self) -> None:
        for case in self.cases(5):
            participant = self.new()
            for turn in range(8):
                request = self.request(case, turn // 2)
                case.note(turn=turn)
                self.ready(participant, request)
                check_release(participant.release(request))

    @clause("PART-008", "two instances share nothing", of=("admit",))
    def instances_share_nothing(self) -> None:
        for case in self.cases(3):
            busy, free, fresh = self.new(), self.new(), self.new()
            requests = [self.request(case, number) for number in range(12)]
            expected = [admission(fresh, request) for request in requests]
            for number in range(40):
                admission(busy, self.request(case, 100 + number))
            for number, (request, before) in enumerate(zip(requests, expected, strict=True)):
                other = _renamed(request, f"other {number}")
                found = admission(free, other)
                if isinstance(before, Ready) and isinstance(found, Wait):
                    found = self._in_the_end(free, other, found)
                # What works in threads is sooner ready at one time than at another.
                same = isinstance(found, Refuse) == isinstance(before, Refuse)
                expect(
                    same and not (isinstance(before, Ready) and isinstance(found, Wait)),
                    "what one instance was asked changes the answers of another",
                    expected=before,
                    found=found,
                )

    def _in_the_end(
        self, participant: SchedulerParticipant, request: Request, answer: Wait
    ) -> Admission:
        """What it answers when it wakes, or `answer` if it does not."""
        ends = self.now() + self.patience * self.slowness
        while not answer.wake():
            if self.now() > ends:
                return answer
            self.pause(0.001)
        return admission(participant, request)


def admission(participant: SchedulerParticipant, request: Request) -> Admission:
    """What `admit` answers, or the refusal that it raises.  Raises Violation for what is none."""
    answer = unless_refused(participant.admit, request)
    check_admission(answer)
    return cast("Admission", answer)


def _tokenizer() -> tuple[Tokenizer, frozenset[int]]:
    tokenizer = ByteTokenizer([f" word{number}" for number in range(VOCABULARY - FIRST_WORD)])
    return tokenizer, frozenset(tokenizer.eos_ids)


def _renamed(request: Request, name: str) -> Request:
    """The same under another id."""
    entry = msgspec.structs.replace(request.input, request_id=name)
    return Request(entry, request.arrival, request.arrived_at, request.tenant)
